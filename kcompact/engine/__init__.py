"""The executors: they run the stages of a cleaning, or of a question.

In: jobs and tasks. Out: their results, and progress.
Imports: `errors`, `host`, `kernels`, `stages`.

    in_process      runs the stages on threads of this process; executors can share its memory
    seals           checksums of blocks and values that leave the memory of a process
    spark/          runs the stages as Spark jobs; only this folder imports PySpark
"""
