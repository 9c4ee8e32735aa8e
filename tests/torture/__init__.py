"""Provokes faults on whole cleanings and counts the outcomes. Run by `python -m tests.torture`; see `docs/safety.md`.

kills             the process dies at every operation: of a cleaning, of a recovery, of retention
power_loss        the disk loses what was not synced, in every way that is allowed
mutants           protocols with an error: the power cuts must show each of them
io_errors         every call to the system fails, once and for good
hostile_bytes     damaged files of every kind, read by the parsers, the planner, the definitions and the kernels
bit_flips         every bit of a small log is flipped: detected, or harmless to a reader
reader_agreement  damaged batches that Kafka's own reader refuses are refused
races             brokers, other runs and other programs at the same time
brokers           a real broker is started beside a cleaning, and a cleaning beside a real broker
diagnoses         random faults: where doctor finds nothing that stops, a cleaning is not refused
buckets           copies to a store that fails, lies and forgets, and readings of them
spark_kills       Spark's processes die at random times, and the disk for Spark's files is full
scene             a log directory that the real Kafka wrote
system_calls      sees each call that changes a file, and kills the process there
recorded          what a run does to the disk, as values
judge             Kafka's own loader and reader: is every record there once, and nothing else
children          forked children, two at a time
faults            lets calls to the system fail inside this process
faulty_runs       whole commands with calls that fail, and what must hold after them
full_disks        disks that fill up, and limits of a process: of `io_errors`
spark_errors      calls fail in the workers of Spark: of `io_errors`
plain_reader      reads what is left without kcompact
foreign           a broker that cleans loses power, and `recover --foreign` ends its swap or refuses
copies            copies of a running broker, compared with a topic that is never cleaned
bucket_faults     what a store or the network does wrong: of `buckets`
bucket_judge      copies in a bucket by their objects: of `buckets`
links             an owner puts links in the place of directories in which root works
tally             what a part has tried, and what failed
"""
