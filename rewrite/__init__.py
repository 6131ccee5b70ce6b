"""Queries that open only the files that can match.

>>> import rewrite
>>> spark = rewrite.session()  # doctest: +SKIP
"""

from rewrite.explain import Explanation, explain
from rewrite.session import Session, disable, enable, session

__all__ = ["Explanation", "Session", "disable", "enable", "explain", "session"]
