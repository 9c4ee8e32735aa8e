"""Where offsets of a log are missing, and what that proves about compaction.

In: `CleanPlan`. Out: `Gaps`.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `plan`.

    answer         the walks over a whole log
    walks          one walk over a range of offsets, the sum of two, and what is found about a whole log
    batches        which offsets of a segment have a record, and what took the others
    rewrite_hints  the facts that show a compaction, labelled as proofs or hints
"""
