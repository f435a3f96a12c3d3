"""Does a data loader read each row once, on any number of hosts? Runs a loader factory as many hosts in one process.

report = audit(make_loader, hosts=[1, 4, 16], workers=[0, 2], records=1024, resume_at=10, resume_hosts=[2])
print(report)

Needs numpy only; jax is imported by `audit` where it is installed, since loaders ask it which process they are.
"""

from trainer_hooks.loader_audit.auditing import assert_reads_each_row_once, audit
from trainer_hooks.loader_audit.report import Cause, Pass, Report, Row

__all__ = ["Cause", "Pass", "Report", "Row", "assert_reads_each_row_once", "audit"]
