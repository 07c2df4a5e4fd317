/** What the slots of a job print. */
import type { ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { slotsOf, SlotLogs } from "../../parts/LogViewer";
import { Loading, Problem } from "../../ui/parts";

export function LogsTab({ job }: { job: Schemas["Job"] }): ReactElement {
  const { value, error } = useLoaded(`${job.jid}/logs/${job.attempt}`, async () => {
    const vertices = await Promise.all(job.vertices.map((v) => data(api.GET("/jobs/{job}/vertices/{vertex}", { params: { path: { job: job.jid, vertex: v.id } } }))));
    const found = await slotsOf(
      job.jid,
      vertices.flatMap((v) => v.subtasks),
    );
    // One slot runs subtasks of several vertices.
    return [...new Map(found.map((slot) => [`${slot.manager}/${slot.name}`, { ...slot, say: `${slot.name.replace(`${job.jid}.`, "slot ").replace(".log", "")} on ${slot.manager}` }])).values()];
  });
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  return <SlotLogs slots={value} />;
}
