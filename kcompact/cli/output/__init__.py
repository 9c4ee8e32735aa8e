"""What the commands print: text for people, JSON for programs, progress on standard error.

printer        lines and tables on a terminal or a pipe
inspection     the answer of `inspect`                    log_bar        a log drawn to scale
plans          the answer of `plan`                       outcome        the answers of `clean` and `recover`
json           every answer as JSON                       explanations   sentences that text and JSON share
dump           batches and records as kafka-dump-log.sh   file_entries   the entries of indexes and checkpoints
progress       bars and lines while `clean` runs
text           values to text, escaped                    streams        closed, full and broken standard streams
"""
