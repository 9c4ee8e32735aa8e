"""What each command does.

inspect        partitions, their batches and records      single_files   files that are named themselves
plan           the plans of the partitions
clean          the story of a cleaning, from the paths to the report
request        what the options of `clean` ask for
consent        the plans are shown, a person is asked
engines        what runs the stages: this process, or Spark
side_by_side   small partitions are cleaned at the same time
recover        interrupted swaps are finished or undone
"""
