package rewrite.jvm.source;

import java.util.List;

/** Steps of a table format's own pruning: of each its name, and the files and bytes it leaves. */
public final class SizeSteps {
  private SizeSteps() {}

  /** Adds one, unless its files are not known. */
  public static void add(List steps, String name, Object files, Object bytes) {
    if (files != null) steps.add(new Object[] {name, files, bytes});
  }
}
