"""Queries that open only the files that can match.

>>> import rewrite
>>> spark = rewrite.session()  # doctest: +SKIP
"""

from skipping.requirements import require_spark

require_spark()  # before anything else fails for the want of it

from rewrite.bridge.install import analyze_expression  # noqa: E402
from rewrite.bridge.shadow import Alarm  # noqa: E402
from rewrite.observe.explain import Explanation, explain  # noqa: E402
from rewrite.observe.history import history, list_unindexed_conditions  # noqa: E402
from rewrite.observe.prometheus import PrometheusCollector, counters  # noqa: E402
from rewrite.observe.statements import report  # noqa: E402
from rewrite.observe.verify import Verification, alarms, verify  # noqa: E402
from rewrite.session import Session, disable, enable, session  # noqa: E402
from skipping.advise.history import learn_from  # noqa: E402
from skipping.commands.reports import answer_with  # noqa: E402
from skipping.tables.computed import analyse_with  # noqa: E402

analyse_with(analyze_expression)  # expressions in an index, also through skipping.sql
answer_with(report)  # EXPLAIN SKIPPING and the like, also through skipping.sql
learn_from(list_unindexed_conditions)  # ANALYZE

__all__ = [
    "Alarm",
    "Explanation",
    "PrometheusCollector",
    "Session",
    "Verification",
    "alarms",
    "counters",
    "disable",
    "enable",
    "explain",
    "history",
    "session",
    "verify",
]
