import java.net.URI;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.rest.FileUpload;
import org.apache.flink.runtime.rest.RestClient;
import org.apache.flink.runtime.rest.messages.*;
import org.apache.flink.runtime.rest.messages.checkpoints.*;
import org.apache.flink.runtime.rest.messages.job.*;
import org.apache.flink.runtime.rest.messages.job.metrics.*;
import org.apache.flink.runtime.rest.messages.job.savepoints.*;
import org.apache.flink.runtime.rest.messages.queue.QueueStatus;
import org.apache.flink.runtime.rest.messages.taskmanager.TaskManagersHeaders;
import org.apache.flink.runtime.webmonitor.handlers.*;

/**
 * The requests that Flink's Kubernetes operator and its autoscaler send, by Flink's own client. Arguments: the URL, a job, a
 * folder for savepoints, a code package, the URL of a dispatcher without authentication. Prints a line for each: its name, a tab, what the answer says.
 */
public class OperatorCalls {
  static RestClusterClient<String> client;
  static final Map<String, String> CONFIG = Map.of("execution.engine", "streaming");

  static <H extends MessageHeaders<R, P, M>, M extends MessageParameters, R extends RequestBody, P extends ResponseBody>
      P ask(H headers, M parameters, R body) throws Exception {
    return client.sendRequest(headers, parameters, body).get(60, TimeUnit.SECONDS);
  }

  static <H extends MessageHeaders<EmptyRequestBody, P, M>, M extends MessageParameters, P extends ResponseBody>
      P get(H headers, M parameters) throws Exception {
    return ask(headers, parameters, EmptyRequestBody.getInstance());
  }

  static void say(String name, Object value) {
    System.out.println(name + "\t" + value);
  }

  /** The parameters, given as key, value, key, value. */
  static <M extends MessageParameters> M with(M parameters, Object... given) throws Exception {
    Map<Object, Object> values = new HashMap<>();
    for (int i = 0; i < given.length; i += 2) values.put(given[i], given[i + 1]);
    for (var parameter : parameters.getPathParameters()) {
      parameter.resolveFromString(values.get(parameter.getKey()).toString());
    }
    for (var parameter : parameters.getQueryParameters()) {
      Object value = values.get(parameter.getKey());
      if (value != null) parameter.resolveFromString(value.toString());
    }
    return parameters;
  }

  static <M extends MessageParameters> M of(JobID job, M parameters) throws Exception {
    return with(parameters, "jobid", job);
  }

  public static void main(String[] given) throws Exception {
    URI url = URI.create(given[0]);
    JobID job = JobID.fromHexString(given[1]);
    String folder = given[2];
    Configuration conf = new Configuration();
    conf.set(RestOptions.ADDRESS, url.getHost());
    conf.set(RestOptions.PORT, url.getPort());
    client = new RestClusterClient<>(conf, "cluster");

    var none = EmptyMessageParameters.getInstance();
    say("overview", get(JobsOverviewHeaders.getInstance(), none).getJobs().stream()
        .filter(j -> j.getJobId().equals(job)).map(j -> j.getStatus().toString()).findFirst());
    say("config", get(DashboardConfigurationHeaders.getInstance(), none).getFlinkVersion());
    say("taskmanagers", get(TaskManagersHeaders.getInstance(), none).getTaskManagerInfos().size());
    say("exceptions", get(JobExceptionsHeaders.getInstance(), of(job, new JobExceptionsMessageParameters()))
        .getExceptionHistory().getEntries().size());

    var metrics = with(new JobMetricsMessageParameters(), "jobid", job, "get", "numRestarts,lastCheckpointFullSize");
    get(JobMetricsHeaders.getInstance(), metrics).getMetrics().forEach(m -> say("metric", m.getId()));

    var statistics = get(CheckpointingStatisticsHeaders.getInstance(), of(job, new JobMessageParameters()));
    long last = statistics.getLatestCheckpoints().getCompletedCheckpointStatistics().getId();
    var one = with(new CheckpointMessageParameters(), "jobid", job, "checkpointid", last);
    say("checkpoint", get(CheckpointStatisticDetailsHeaders.getInstance(), one).getStatus());

    // The autoscaler.
    var details = get(JobDetailsHeaders.getInstance(), of(job, new JobMessageParameters()));
    say("vertices", details.getJobVertexInfos().size());
    say("plan", details.getPlan() != null);
    for (var vertex : details.getJobVertexInfos()) {
      var asked = with(new AggregatedSubtaskMetricsParameters(), "jobid", job, "vertexid", vertex.getJobVertexID(),
          "get", "busyTimeMsPerSecond,numRecordsInPerSecond");
      for (var m : get(AggregatedSubtaskMetricsHeaders.getInstance(), asked).getMetrics()) {
        say("aggregated", m.getId() + " " + (m.getMax() != null));
      }
    }
    say("requirements", get(JobResourceRequirementsHeaders.INSTANCE, of(job, new JobMessageParameters()))
        .asJobResourceRequirements().get().getJobVertexParallelisms().size());

    // Savepoints and checkpoints.
    var trigger = ask(SavepointTriggerHeaders.getInstance(), of(job, new SavepointTriggerMessageParameters()),
        new SavepointTriggerRequestBody(folder, false, SavepointFormatType.CANONICAL, null)).getTriggerId();
    var status = with(new SavepointStatusMessageParameters(), "jobid", job, "triggerid", trigger);
    SavepointInfo savepoint;
    while (true) {
      var answer = get(SavepointStatusHeaders.getInstance(), status);
      if (answer.queueStatus().getId() == QueueStatus.Id.COMPLETED) {
        savepoint = answer.resource();
        break;
      }
      Thread.sleep(200);
    }
    say("savepoint", savepoint.getLocation());
    say("disposed", client.disposeSavepoint(savepoint.getLocation()).get(60, TimeUnit.SECONDS));
    var checkpoint = ask(CheckpointTriggerHeaders.getInstance(), of(job, new CheckpointTriggerMessageParameters()),
        new CheckpointTriggerRequestBody(null, null)).getTriggerId();
    var asked = with(new CheckpointStatusMessageParameters(), "jobid", job, "triggerid", checkpoint);
    while (get(CheckpointStatusHeaders.getInstance(), asked).queueStatus().getId() != QueueStatus.Id.COMPLETED) {
      Thread.sleep(200);
    }
    say("triggered", get(CheckpointStatusHeaders.getInstance(), asked).resource().getFailureCause() == null);
    say("stopped", client.stopWithSavepoint(job, false, folder, SavepointFormatType.DEFAULT).get(120, TimeUnit.SECONDS));
    say("result", client.requestJobResult(job).get(60, TimeUnit.SECONDS).getJobStatus().get());

    // A session job. The operator uploads by Flink's RestClient, which sends no header of the environment.
    URI open = URI.create(given[4]);
    var plain = new RestClient(conf, Runnable::run);
    var uploaded = plain.sendRequest(open.getHost(), open.getPort(), JarUploadHeaders.getInstance(), none,
        EmptyRequestBody.getInstance(), List.of(new FileUpload(Path.of(given[3]), "application/zip")))
        .get(60, TimeUnit.SECONDS);
    String id = Path.of(uploaded.getFilename()).getFileName().toString();
    var which = with(new JarRunMessageParameters(), "jarid", id);
    JobID second = JobID.generate();
    var ran = ask(JarRunHeaders.getInstance(), which, new JarRunRequestBody(
        null, List.of("--n", "7"), 1, second, null, null, null, CONFIG));
    say("ran", ran.getJobId().equals(second));
    client.cancel(second).get(60, TimeUnit.SECONDS);
    say("result", client.requestJobResult(second).get(60, TimeUnit.SECONDS).getJobStatus().get());
    JobID third = JobID.generate();
    var application = ask(JarRunApplicationHeaders.getInstance(), with(new JarRunApplicationMessageParameters(), "jarid", id),
        new JarRunApplicationRequestBody(null, null, 1, third, null, null, null, CONFIG, null)).getApplicationId();
    say("application", application.toHexString().equals(third.toHexString()));
    client.cancel(third).get(60, TimeUnit.SECONDS);
    say("result", client.requestJobResult(third).get(60, TimeUnit.SECONDS).getJobStatus().get());
    get(JarDeleteHeaders.getInstance(), with(new JarDeleteMessageParameters(), "jarid", id));
    say("deleted", get(JarListHeaders.getInstance(), none).jarFileList.size());
    client.close();
    System.exit(0);
  }
}
