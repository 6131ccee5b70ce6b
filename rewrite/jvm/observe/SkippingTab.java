package rewrite.jvm.observe;

import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.WebUITab;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.TabPage;
import scala.xml.Text;

/**
 * The tab "File skipping" in the UI of a Spark context. `rewrite/observe/tab.py` writes its
 * sections; one that fails does not hide the others.
 */
public final class SkippingTab extends SparkUITab {
  private static final String PREFIX = "skipping";
  private static final List<String> SECTIONS = List.of("executions", "tables", "decisions");

  /** Pages that are written at once: they use the threads that call Python for queries. */
  private static final Semaphore PERMITS = new Semaphore(2);

  private final IndexClient client;

  private SkippingTab(SparkUI ui, IndexClient client) {
    super(ui, PREFIX);
    this.client = client;
    attachPage(new TabPage(this, this::content));
  }

  @Override public String name() {
    return "File skipping";
  }

  /** Adds the tab, unless Spark has no UI, or an earlier installation has added it: each knows the
      executions of all sessions. */
  public static void attach(SparkContext context, IndexClient client) {
    try {
      SparkUI ui = ScalaInterop.orNull(context.ui());
      if (ui == null) return;
      synchronized (ui) {
        for (WebUITab each : ScalaInterop.<WebUITab>asJava(ui.getTabs())) {
          if (each.prefix().equals(PREFIX)) return;
        }
        ui.attachTab(new SkippingTab(ui, client));
      }
    } catch (Throwable failure) {
      Failures.passOn(failure); // then the UI lacks the tab
    }
  }

  private String content() {
    if (!PERMITS.tryAcquire()) return "<p>Other pages are being written: reload this one.</p>";
    try {
      StringBuilder out = new StringBuilder();
      SECTIONS.forEach(section -> out.append(section(section)));
      return out.toString();
    } finally {
      PERMITS.release();
    }
  }

  private String section(String name) {
    try {
      return client.section(name);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      String reason = failure instanceof TimeoutException
          ? "Python did not answer in time"
          : Failures.describe(failure);
      return "<p>No " + name + ": " + new Text(reason) + "</p>";
    }
  }
}
