"""The executors: who calls the stages of a cleaning.

In: jobs and tasks of `clean`. Out: their results, and progress.
Imports: `errors`, `host`, `clean`.

    in_process   threads of this process
    spark        jobs of a SparkContext; the only room that imports PySpark
"""
