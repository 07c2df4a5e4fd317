/** Small parts of every page. */
import type { ReactElement, ReactNode } from "react";
import { tone, type Tone } from "../lib/format";

export function Badge({ children, of, plain }: { children: ReactNode; of?: Tone; plain?: boolean }): ReactElement {
  return <span className={`badge ${of ?? ""} ${plain ? "plain" : ""}`}>{children}</span>;
}

/** A state in words, with its colour. */
export function State({ of }: { of: string }): ReactElement {
  return <Badge of={tone(of)}>{of.toLowerCase().replace("_", " ")}</Badge>;
}

export function Card(props: { title?: ReactNode; end?: ReactNode; children: ReactNode; flush?: boolean; label?: string }): ReactElement {
  return (
    <section className="card" aria-label={props.label}>
      {props.title !== undefined && (
        <header>
          <h2>{props.title}</h2>
          {props.end && <div className="end">{props.end}</div>}
        </header>
      )}
      <div className={props.flush ? "flush" : "body"}>{props.children}</div>
    </section>
  );
}

export function Tile({ what, value, note, href }: { what: string; value: ReactNode; note?: ReactNode; href?: string }): ReactElement {
  const inside = (
    <>
      <div className="what">{what}</div>
      <div className="value">{value}</div>
      {note && <div className="note">{note}</div>}
    </>
  );
  return href ? (
    <a className="tile" href={href}>
      {inside}
    </a>
  ) : (
    <div className="tile">{inside}</div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }): ReactElement {
  return (
    <div className="empty">
      <b>{title}</b>
      {children}
    </div>
  );
}

export function Loading(): ReactElement {
  return (
    <div className="empty" role="status">
      Loading …
    </div>
  );
}

export function Problem({ text }: { text: string }): ReactElement {
  return (
    <div className="notice bad" role="alert">
      <pre>{text}</pre>
    </div>
  );
}

/** Links that choose a part of a page. */
export function Tabs({ items, current, label }: { items: { key: string; text: string; href: string; count?: number; bad?: boolean }[]; current: string; label: string }): ReactElement {
  return (
    <nav className="tabs" aria-label={label}>
      {items.map((item) => (
        <a key={item.key} href={item.href} aria-current={item.key === current ? "page" : undefined}>
          {item.text}
          {item.count ? <span className={`count ${item.bad ? "bad" : ""}`}>{item.count}</span> : null}
        </a>
      ))}
    </nav>
  );
}

export function Segments<T extends string>(props: { label: string; items: { key: T; text: string }[]; value: T; onChange: (key: T) => void }): ReactElement {
  return (
    <div className="segments" role="group" aria-label={props.label}>
      {props.items.map((item) => (
        <button key={item.key} type="button" aria-pressed={item.key === props.value} onClick={() => props.onChange(item.key)}>
          {item.text}
        </button>
      ))}
    </div>
  );
}

/** How a task spends its time. */
export function BusyMeter({ busy, pressure }: { busy: number; pressure: number }): ReactElement {
  const say = `busy ${Math.round(100 * busy)} %, back-pressured ${Math.round(100 * pressure)} %`;
  return (
    <div className="meter" role="img" aria-label={say} title={say}>
      <i className="busy" style={{ width: `${100 * Math.min(1, busy)}%` }} />
      <i className="pressure" style={{ width: `${100 * Math.min(1 - Math.min(1, busy), pressure)}%` }} />
    </div>
  );
}

export function BusyLegend(): ReactElement {
  return (
    <div className="legend">
      <span>
        <i style={{ background: "var(--busy)" }} /> busy
      </span>
      <span>
        <i style={{ background: "var(--pressure)" }} /> back-pressured: waits for readers
      </span>
      <span>
        <i style={{ background: "var(--idle)" }} /> idle: waits for records
      </span>
    </div>
  );
}

/** A share of something. */
export function Meter({ share, say }: { share: number; say: string }): ReactElement {
  return (
    <div className="meter" role="img" aria-label={say} title={say}>
      <i className="fill" style={{ width: `${100 * Math.min(1, Math.max(0, share))}%` }} />
    </div>
  );
}

export function Pairs({ of }: { of: [string, ReactNode][] }): ReactElement {
  return (
    <dl className="pairs">
      {of.map(([name, value]) => (
        <Pair key={name} name={name} value={value} />
      ))}
    </dl>
  );
}

function Pair({ name, value }: { name: string; value: ReactNode }): ReactElement {
  return (
    <>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </>
  );
}
