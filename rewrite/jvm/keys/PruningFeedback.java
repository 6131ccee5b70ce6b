package rewrite.jvm.keys;

import java.lang.ref.WeakReference;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import rewrite.jvm.predicate.Conditions;
import scala.Option;

/**
 * What the keys of joins saved, by the shape of the question: table, column, dimension, conditions.
 *
 * <p>A shape that saved too little is not asked in the next query, then in the next three, then
 * seven, at last in ten: data and conditions change. Where keys split what Spark reads once, a try
 * may cost as much as the query: then the pauses are seven, fifteen, at last forty. One whose keys
 * could not be collected is not asked for ten times as long as that took.
 */
public final class PruningFeedback {
  private static final int LONGEST_PAUSE = 10;
  private static final int LONGEST_PAUSE_OF_ALIKE = 40;
  private static final double PAUSE_FOR_LOSS = 10;
  private static final double LEAST = 0.01;
  private static final int KEPT = 10000;
  private static final UUID FLEETING = UUID.randomUUID();

  private final Map shapes = new Recent();
  private final Map asked = new Recent();

  /**
   * Why a shape is not worth asking; null: it is.
   *
   * <p>What was lost is of a dimension with the same `price`: another size may be another one.
   *
   * <p>Without keys Spark would read the scan once for `alike` parts of the query. All scans of a
   * query get the same answer, else their copies would no longer be alike.
   */
  public synchronized String refusal(String shape, String price, int alike) {
    Outcome outcome = (Outcome) shapes.get(shape);
    if (outcome == null) return null;
    boolean isLost = outcome.loss != null && outcome.lossPrice.equals(price);
    if (isLost && System.nanoTime() - outcome.lossEnds < 0) {
      return "keys were not collected lately: " + outcome.loss;
    }
    if (outcome.inVain == 0) return null;
    Object query = query();
    if (outcome.query.get() != query) {
      outcome.query = new WeakReference(query);
      outcome.refused++;
    }
    if (outcome.refused > outcome.pause(alike)) return null;
    return "keys of this shape saved less than " + (int) (100 * worth(alike))
        + " % of the files lately"
        + (alike == 1 ? "" : ", which Spark reads once for " + alike + " parts of the query");
  }

  /** Remembers what an expression that was put into a plan asks for. `fleeting`: what may give the
      dimension other rows when it is computed again; null: nothing. `join` is what the keys have
      in common with others of the same rows. */
  public synchronized void note(
      ExprId id, String shape, String price, int alike, String dimension, String fleeting,
      Object join) {
    asked.put(id, new Asked(shape, price, alike, dimension, fleeting, join));
  }

  /** Whether the keys of two expressions are columns of the same rows of one dimension: those of
      one join. A dimension that is joined twice is two, though Spark broadcasts it once. */
  public synchronized boolean areOfOneJoin(ExprId one, ExprId other) {
    Asked first = (Asked) asked.get(one);
    Asked second = (Asked) asked.get(other);
    return first != null && second != null && first.join == second.join;
  }

  /** The same of an expression for tuples, where there is one for the keys of one column. */
  public synchronized void noteTuples(ExprId id, ExprId keys) {
    Asked of = (Asked) asked.get(keys);
    if (of == null) return;
    note(id, of.shape + "\ntuples", of.price, of.alike, of.dimension, of.fleeting, of.join);
  }

  /** Whether the tuples of keys were lost lately. */
  public synchronized boolean losesTuples(ExprId keys) {
    Asked of = (Asked) asked.get(keys);
    return of != null && refusal(of.shape + "\ntuples", of.price, of.alike) != null;
  }

  /** Whether a condition of a logical plan is one that we put there. */
  public boolean isOurs(Object condition) {
    Expression dynamic = Conditions.dynamic((Expression) condition);
    return dynamic instanceof DynamicPruningSubquery
        && knows(((DynamicPruningSubquery) dynamic).exprId());
  }

  /** Whether an expression was put into a plan by us. */
  public synchronized boolean knows(ExprId id) {
    return asked.containsKey(id);
  }

  /** The dimension that an expression asks for the keys of. */
  public synchronized String dimension(ExprId id) {
    Asked noted = (Asked) asked.get(id);
    return noted == null ? "a dimension" : noted.dimension;
  }

  /** A new number for an expression. That its dimension may have other rows when it is computed
      again is part of it: what is noted may be forgotten before a long query is through. */
  public ExprId newId(boolean isFleeting) {
    ExprId id = NamedExpression$.MODULE$.newExprId();
    return isFleeting ? new ExprId(id.id(), FLEETING) : id;
  }

  /** What may give that dimension other rows when it is computed again; null: nothing. */
  public synchronized String fleeting(ExprId id) {
    Asked noted = (Asked) asked.get(id);
    if (noted != null) return noted.fleeting;
    return FLEETING.equals(id.jvmId()) ? "rows that may be others" : null;
  }

  /** Notes which share of the files (0 to 1) an expression's keys pruned. */
  public synchronized void saved(ExprId id, double share) {
    Asked noted = (Asked) asked.get(id);
    if (noted == null) return;
    Outcome outcome = (Outcome) shapes.get(noted.shape);
    if (outcome == null) shapes.put(noted.shape, outcome = new Outcome());
    if (share >= worth(noted.alike)) {
      outcome.inVain = 0;
    } else if (outcome.isAnother(noted.query.get())) { // each part of a query says the same
      outcome.inVain++;
    }
    outcome.tried = noted.query;
    outcome.refused = 0;
    outcome.loss = null;
  }

  /** Notes that an expression's keys could not be collected, why, and how long that took. */
  public synchronized void lost(ExprId id, String reason, double seconds) {
    Asked noted = (Asked) asked.get(id);
    if (noted == null) return;
    Outcome outcome = (Outcome) shapes.get(noted.shape);
    if (outcome == null) shapes.put(noted.shape, outcome = new Outcome());
    outcome.loss = reason;
    outcome.lossPrice = noted.price;
    outcome.lossEnds = System.nanoTime() + (long) (PAUSE_FOR_LOSS * seconds * 1e9);
  }

  /** The query that is planned now, as far as it is known. */
  private static Object query() {
    Option query = QueryPlanningTracker$.MODULE$.get();
    return query.isEmpty() ? null : query.get();
  }

  /** The share of the files to be saved: where one read serves several parts, what the others
      cost. */
  private static double worth(int alike) {
    return Math.max(LEAST, 1 - 1.0 / alike);
  }

  /** What an expression asks for. */
  private static final class Asked {
    private final String shape;
    private final String price;
    private final int alike;
    private final String dimension;
    private final String fleeting;
    private final Object join;
    private final WeakReference query = new WeakReference(query());

    Asked(
        String shape, String price, int alike, String dimension, String fleeting, Object join) {
      this.shape = shape;
      this.price = price;
      this.alike = alike;
      this.dimension = dimension;
      this.fleeting = fleeting;
      this.join = join;
    }
  }

  /** How questions of one shape went. */
  private static final class Outcome {
    private int inVain;
    private int refused;
    private String loss;
    private String lossPrice;
    private long lossEnds;
    private WeakReference query = new WeakReference(null);
    private WeakReference tried = new WeakReference(null);

    /** Whether it was another query, as far as that is known, in which the last try was. */
    boolean isAnother(Object query) {
      return query == null || tried.get() != query;
    }

    /** How many queries are refused before the next one asks. */
    int pause(int alike) {
      int longest = alike == 1 ? LONGEST_PAUSE : LONGEST_PAUSE_OF_ALIKE;
      int doubled = alike == 1 ? inVain : inVain + 2;
      return Math.min(longest, (1 << Math.min(doubled, 10)) - 1);
    }
  }

  /** A map that forgets what was not touched for long. */
  private static final class Recent extends LinkedHashMap {
    private static final long serialVersionUID = 1;

    Recent() {
      super(16, 0.75f, true);
    }

    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > KEPT;
    }
  }
}
