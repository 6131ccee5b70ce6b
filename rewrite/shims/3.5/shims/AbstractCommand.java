package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.command.LeafRunnableCommand;
import scala.Enumeration;
import scala.Function1;
import scala.collection.IndexedSeq;
import scala.collection.Seq;
import scala.collection.immutable.Nil$;

/**
 * A command without children, whose own methods name no Seq.
 *
 * <p>Until Scala 2.12 a Seq is that of scala.collection; see 4.0.
 */
public abstract class AbstractCommand extends LogicalPlan implements LeafRunnableCommand {
  private Seq<Enumeration.Value> patterns;

  @SuppressWarnings("unchecked")
  public Seq<LogicalPlan> children() {
    return (Seq<LogicalPlan>) (Object) Nil$.MODULE$;
  }

  public LogicalPlan mapChildren(Function1<LogicalPlan, LogicalPlan> change) {
    return this;
  }

  public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
    return this;
  }

  @SuppressWarnings("unchecked")
  public Seq<Enumeration.Value> nodePatterns() {
    return patterns == null ? (Seq<Enumeration.Value>) (Object) Nil$.MODULE$ : patterns;
  }

  public void org$apache$spark$sql$catalyst$plans$logical$Command$_setter_$nodePatterns_$eq(
      Seq<Enumeration.Value> patterns) {
    this.patterns = patterns;
  }
}
