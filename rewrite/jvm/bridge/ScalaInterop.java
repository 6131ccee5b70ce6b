package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.List;

/** Scala collections as Java's and back. */
public final class ScalaInterop {
  private ScalaInterop() {}

  /** Any Scala collection as a list. */
  public static List list(scala.collection.Iterable items) {
    List out = new ArrayList();
    scala.collection.Iterator each = items.iterator();
    while (each.hasNext()) {
      out.add(each.next());
    }
    return out;
  }

  /** A list as Scala's, which is the Seq of each Scala. */
  public static scala.collection.immutable.List seq(List items) {
    scala.collection.mutable.ListBuffer out = new scala.collection.mutable.ListBuffer();
    for (Object item : items) {
      out.$plus$eq(item);
    }
    return out.toList();
  }
}
