"""Run all tests, or those that the arguments name. Without TaskFlow, the exit status is 75.

    CONDUCTORD_SERVER=127.0.0.1:7070 python3 run.py [NAME ...]
"""

import logging
import sys
import unittest

try:
    import taskflow.test  # noqa: F401
except ImportError as error:
    print("needs TaskFlow with its tests (apt-get install python3-taskflow python3-oslotest python3-testscenarios): %s" % error)
    sys.exit(75)

NAMES = ["test_board", "test_logbook", "test_conductors", "test_engines", "test_faults", "test_chaos", "test_move", "test_cluster"]

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    unittest.main(module=None, argv=["run.py"] + (sys.argv[1:] or NAMES))
