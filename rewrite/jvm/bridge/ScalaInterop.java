package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.List;

/** Converts Scala collections and options to Java's, and back. */
public final class ScalaInterop {
  private ScalaInterop() {}

  /** Returns the items in a list that can be changed. */
  public static <T> List<T> asJava(scala.collection.Iterable<? extends T> items) {
    List<T> out = new ArrayList<>();
    for (scala.collection.Iterator<? extends T> each = items.iterator(); each.hasNext(); ) {
      out.add(each.next());
    }
    return out;
  }

  /** Returns the items as a list of Scala, which is a Seq there. */
  public static <T> scala.collection.immutable.List<T> asScala(Iterable<? extends T> items) {
    scala.collection.mutable.ListBuffer<T> out = new scala.collection.mutable.ListBuffer<>();
    for (T item : items) {
      out.$plus$eq(item);
    }
    return out.toList();
  }

  /** Returns the value of an option; null if it has none. */
  public static <T> T orNull(scala.Option<? extends T> option) {
    return option.isDefined() ? option.get() : null;
  }
}
