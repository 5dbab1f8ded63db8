"""Python loads this when it starts with this folder on ``PYTHONPATH``: installs the faults of a
test.
"""

import faults

faults.install()
