package rewrite.jvm.join;

import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.source.TableStatistics;

/** What the rule for joins gets from outside: indexes, sources and results of keys, and bounds. */
record PruningContext(
    IndexClient client, PruningRegistry registry, PruningFeedback feedback,
    TableStatistics statistics) {}
