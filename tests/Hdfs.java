import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;

/**
 * An HDFS of one NameNode and one DataNode: FOLDER.
 *
 * <p>It prints its port. A line on standard input stops or starts a node (`stop NameNode`), and is
 * answered when that is done; at its end the program ends.
 */
public class Hdfs {
  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err); // Hadoop prints, too
    Configuration conf = new HdfsConfiguration();
    conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, args[0]);
    MiniDFSCluster hdfs = new MiniDFSCluster.Builder(conf).build();
    hdfs.waitActive();
    out.println(hdfs.getNameNodePort());
    DataNodeProperties stopped = null;
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      switch (line.trim()) {
        case "stop DataNode" -> stopped = hdfs.stopDataNode(0);
        case "start DataNode" -> hdfs.restartDataNode(stopped, true);
        case "stop NameNode" -> hdfs.shutdownNameNode(0);
        case "start NameNode" -> hdfs.restartNameNode(0);
        default -> throw new IllegalArgumentException(line);
      }
      if (line.startsWith("start")) {
        hdfs.waitActive();
      }
      out.println(line.trim());
    }
    System.exit(0);
  }
}
