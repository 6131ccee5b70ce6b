package rewrite.jvm;

import java.lang.ref.WeakReference;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.ExprId;

/**
 * What the keys of joins saved, by the shape of the question: table, column, dimension, conditions.
 *
 * <p>A shape that saved nothing several times in a row is not asked again, but every now and then:
 * data and conditions change.
 */
public final class History {
  private static final int PATIENCE = 3;
  private static final int RETRY = 10;
  private static final double WORTH = 0.01;
  private static final int KEPT = 10000;

  private final Map shapes = new Recent();
  private final Map asked = new Recent();

  /** Why a shape is not worth asking; null: it is. Spark runs a rule several times over a plan, so
      `scan` tells one query from the next. */
  public synchronized String refusal(String shape, Object scan) {
    Outcome outcome = (Outcome) shapes.get(shape);
    if (outcome == null || outcome.inVain < PATIENCE) return null;
    if (outcome.scan.get() != scan) {
      outcome.scan = new WeakReference(scan);
      outcome.refused++;
    }
    if (outcome.refused % RETRY == 0) return null;
    return "the last " + outcome.inVain + " questions of this shape saved less than "
        + (int) (100 * WORTH) + " % of the files";
  }

  /** Remembers what an expression that was put into a plan asks for. */
  public synchronized void note(ExprId id, String shape, String dimension) {
    asked.put(id, new String[] {shape, dimension});
  }

  /** Whether an expression was put into a plan by us. */
  public synchronized boolean knows(ExprId id) {
    return asked.containsKey(id);
  }

  /** The dimension that an expression asks for the keys of. */
  public synchronized String dimension(ExprId id) {
    String[] noted = (String[]) asked.get(id);
    return noted == null ? "a dimension" : noted[1];
  }

  /** Notes which share of the files (0 to 1) an expression's keys disproved. */
  public synchronized void saved(ExprId id, double share) {
    String[] noted = (String[]) asked.get(id);
    if (noted == null) return;
    Outcome outcome = (Outcome) shapes.get(noted[0]);
    if (outcome == null) shapes.put(noted[0], outcome = new Outcome());
    outcome.inVain = share < WORTH ? outcome.inVain + 1 : 0;
  }

  /** How questions of one shape went. */
  private static final class Outcome {
    private int inVain;
    private int refused;
    private WeakReference scan = new WeakReference(null);
  }

  /** A map that forgets what was not touched for long. */
  private static final class Recent extends LinkedHashMap {
    Recent() {
      super(16, 0.75f, true);
    }

    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > KEPT;
    }
  }
}
