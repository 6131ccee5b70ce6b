package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.command.LeafRunnableCommand;
import scala.Enumeration;
import scala.Function1;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.collection.immutable.List$;

/**
 * A command without children, whose own methods name no Seq.
 *
 * <p>Since Scala 2.13, which Spark 4.0 needs, a Seq is immutable.
 */
public abstract class AbstractCommand extends LogicalPlan implements LeafRunnableCommand {
  private Seq<Enumeration.Value> patterns;

  public Seq<LogicalPlan> children() {
    return List$.MODULE$.empty();
  }

  public LogicalPlan mapChildren(Function1<LogicalPlan, LogicalPlan> change) {
    return this;
  }

  public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
    return this;
  }

  public Seq<Enumeration.Value> nodePatterns() {
    return patterns == null ? List$.MODULE$.empty() : patterns;
  }

  public void org$apache$spark$sql$catalyst$plans$logical$Command$_setter_$nodePatterns_$eq(
      Seq<Enumeration.Value> patterns) {
    this.patterns = patterns;
  }
}
