"""Log directories in a bucket of S3, or of a store with the same protocol.

In: the address of a partition or of a log directory, `s3://bucket/prefix`. Out: a `BucketPath`, which everything else
uses as a local path.
Imports: format, host, errors. `botocore`, the client of the AWS tools, is loaded when a bucket is used.

    path        `BucketPath`: a path in the scratch directory that prints as the address
    scratch     the private directory of this process, removed at its end
    mirror      puts the names, sizes and times of objects into the scratch
    mirrored_file   one of these files, which gets its bytes when they are read
    client      the client, with the settings of the AWS tools
    answers     which error an answer of a store is, with its cause
    remote      reads, writes and lists objects; the only module that sends requests
    manifest    what a copied partition consists of
    upload      uploads a copied directory, and then its manifest

**The idea.** The objects below an address are mirrored as files with holes: listing, sizes and times are those of the
bucket at one moment, and a part of an object is fetched when something reads it. So discovery, plans and views need to
know nothing of buckets; only `log.files` fetches before it reads. Each request names the version of the object that was
listed (If-Match), so a log that changes meanwhile is an error and never a mixture.

    s3://backups/eu/orders-0/00000000000000000000.log     the object
    SCRATCH/backups/eu/orders-0/00000000000000000000.log     its file with holes, and the `BucketPath`
"""
