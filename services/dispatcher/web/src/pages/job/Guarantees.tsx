/** What holds from the sources to each sink, and how long a transactional sink keeps rows back. */
import type { ReactElement } from "react";
import type { Schemas } from "../../api/client";
import { Card } from "../../ui/parts";

export function Guarantees({ job }: { job: Schemas["Job"] }): ReactElement | null {
  if (!job.guarantees.length) return null;
  return (
    <Card title="Guarantees" flush>
      <div className="scroll">
        <table className="list">
          <thead>
            <tr>
              <th>Sink</th>
              <th>From its sources to its table</th>
              <th>By itself</th>
              <th>Sources</th>
            </tr>
          </thead>
          <tbody>
            {job.guarantees.map((chain) => (
              <tr key={chain.sink.uid}>
                <td>{chain.sink.name}</td>
                <td>
                  {chain.gives}
                  {[chain.because, chain.latency].filter(Boolean).map((note) => (
                    <div key={note} className="dim small">
                      {note}
                    </div>
                  ))}
                </td>
                <td>{chain.sink.gives}</td>
                <td>
                  {chain.sources.map((source) => (
                    <div key={source.uid}>
                      {source.name}: {source.gives}
                    </div>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
