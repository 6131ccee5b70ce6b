package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/** Converts Scala collections, options and functions to Java's, and back. */
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

  /** Returns the first result that is not null; null if all are. */
  public static <T, R> R findFirst(scala.collection.Iterable<T> items, Function<T, R> find) {
    for (T item : asJava(items)) { // no stream: this recurses deeply
      R found = find.apply(item);
      if (found != null) return found;
    }
    return null;
  }

  /** Returns the value of an option; null if it is empty. */
  public static <T> T orNull(scala.Option<? extends T> option) {
    return option.isDefined() ? option.get() : null;
  }

  /** Returns the function that transforms a tree of Spark: it returns a node itself to keep it. */
  public static <T> scala.PartialFunction<T, T> transformation(Function<T, ? extends T> function) {
    return new Transformation<>(function);
  }

  private static final class Transformation<T> extends scala.runtime.AbstractPartialFunction<T, T> {
    private final Function<T, ? extends T> function;

    Transformation(Function<T, ? extends T> function) {
      this.function = function;
    }

    @Override public boolean isDefinedAt(T node) {
      return true;
    }

    @Override @SuppressWarnings("unchecked") // a supertype of T, which Java cannot express
    public <A extends T, B> B applyOrElse(A node, scala.Function1<A, B> otherwise) {
      return (B) function.apply(node);
    }
  }
}
