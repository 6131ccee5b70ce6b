package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.List;
import scala.collection.immutable.Seq;

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

  /** A list as an immutable Seq. */
  public static Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
  }
}
