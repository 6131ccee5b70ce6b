"""Run work in Spark that an interrupt, such as Ctrl-C, can end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from skipping.spark_api import classic

_Result = TypeVar("_Result")

_PAUSE, _PATIENCE = 0.1, 3.0
"""Seconds between two cancellations, and seconds that an interrupt waits for the work to end."""


def run_interruptibly(spark: SparkSession, work: Callable[[], _Result]) -> _Result:
    """Return the work's result; an interrupt cancels its jobs, also those that it starts later.

    The work runs in another thread, because the main thread cannot be interrupted in a call to
    Java: PySpark's signal handler calls Java within that call, which breaks the connection but does
    not stop the work. Notebooks replace this handler by one that cancels nothing.
    """
    context = spark.sparkContext
    if threading.current_thread() is not threading.main_thread() or context._jsc is None:
        return work()
    tag = f"skipping-{uuid.uuid4()}"
    done: Future[_Result] = Future()
    within = copy_context()

    def run() -> None:
        try:
            context.addJobTag(tag)
            jvm: Any = spark._jvm
            classic(jvm).SparkSession.setActiveSession(spark._jsparkSession)
            done.set_result(within.run(work))
        except BaseException as error:
            done.set_exception(error)

    def cancel() -> None:
        with suppress(Py4JError, OSError):  # Spark has stopped
            while not done.done():
                context.cancelJobsWithTag(tag)
                wait([done], _PAUSE)

    InheritableThread(run, name="skipping work", daemon=True).start()
    try:
        return done.result()
    except BaseException:
        if not done.done():
            threading.Thread(target=cancel, name="skipping cancel", daemon=True).start()
            wait([done], _PATIENCE)
        raise
