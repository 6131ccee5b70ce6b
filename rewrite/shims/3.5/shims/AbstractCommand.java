package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.command.LeafRunnableCommand;
import scala.Enumeration;
import scala.Function1;
import scala.collection.IndexedSeq;
import scala.collection.Seq;
import scala.collection.immutable.List$;

/**
 * A command without children, whose own methods name no Seq.
 *
 * <p>Until Scala 2.12 a Seq is that of scala.collection; see 4.0.
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
