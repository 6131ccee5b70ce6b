"""Files that fail, or take long, the first time that they are opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

SOURCE = """
package tests;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** The files of this machine, by the scheme `trouble`. */
public class Troubled extends RawLocalFileSystem {
  private static final URI HERE = URI.create("trouble:///");
  private final Set opened = Collections.synchronizedSet(new HashSet());
  private final int seconds;

  /** So many seconds does an opening take; none: it fails. */
  public Troubled(int seconds) throws IOException {
    this.seconds = seconds;
    initialize(HERE, new Configuration());
  }

  public URI getUri() {
    return HERE;
  }

  public FSDataInputStream open(Path path, int size) throws IOException {
    if (opened.add(path.toString())) {
      if (seconds == 0) throw new IOException("the dimension is away");
      try {
        Thread.sleep(1000L * seconds);
      } catch (InterruptedException stopped) {
        throw new IOException(stopped);
      }
    }
    return super.open(path, size);
  }

  /** As if Hadoop had found it by its scheme; and no longer. */
  public void set(Configuration conf, boolean there) throws Exception {
    Method method =
        FileSystem.class.getDeclaredMethod(
            there ? "addFileSystemForTesting" : "removeFileSystemForTesting",
            new Class[] {URI.class, Configuration.class, FileSystem.class});
    method.setAccessible(true);
    method.invoke(null, new Object[] {HERE, conf, this});
  }
}
"""


@cache
def _constructor(spark: SparkSession) -> Any:
    # Once: Py4J keeps methods by the name of their class.
    jvm: Any = spark.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE)
    (made,) = compiler.getClassLoader().loadClass("tests.Troubled").getConstructors()
    return made


@contextmanager
def troubled(spark: SparkSession, folder: Path, *names: str, seconds: int = 0) -> Iterator[None]:
    """Views of 80 keys `k` and a `name`, each in a Parquet file that is in trouble."""
    jvm: Any = spark.sparkContext._jvm
    given = jvm.java.util.ArrayList()
    given.add(seconds)
    files = _constructor(spark).newInstance(given.toArray())
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    rows = spark.range(80).selectExpr("int(id) AS k", "id % 8 AS name").coalesce(1)
    for name in names:
        rows.write.parquet(str(folder / name))
    files.set(hadoop, True)
    try:
        for name in names:
            view = spark.read.schema(rows.schema).parquet(f"trouble:{folder / name}")
            view.createOrReplaceTempView(name)
        yield
    finally:
        files.set(hadoop, False)
        for name in names:
            spark.catalog.dropTempView(name)
