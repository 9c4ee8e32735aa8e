"""The transactions of a log: how they ended, which are open, and what waits for them.

In: `CleanPlan`. Out: `TransactionReport`.
Imports: `errors`, `format`, `kernels`, `log`, `plan`.

    answer     the report, transaction by transaction
    log_order  the transactional and the control batches of a log in order; the tombstones
"""
