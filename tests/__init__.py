"""The tests of kcompact.

No result may depend on a Kafka that is installed or runs on this machine, so kcompact does not look for a broker's file
here, in no process that a test starts. The tests of the search turn it on.
"""

import os

os.environ["KCOMPACT_BROKER_SEARCH"] = "off"
