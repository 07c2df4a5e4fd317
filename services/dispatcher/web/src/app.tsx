/** The frame of all pages: navigation, the state of the connection, and the page of the address. */
import { lazy, Suspense, useEffect, useRef, type ReactElement } from "react";
import { api, data, useLoaded } from "./api/client";
import { logOut, useIdentity } from "./api/identity";
import { useConnected, useTopic } from "./api/live";
import { to, useRoute } from "./lib/router";
import { choose, useTheme, type Choice } from "./lib/theme";
import { ClusterPage } from "./pages/Cluster";
import { JobPage } from "./pages/Job";
import { JobsPage } from "./pages/Jobs";
import { OverviewPage } from "./pages/Overview";
import { SubmitPage } from "./pages/Submit";
import { TaskManagerPage } from "./pages/TaskManager";
import { TaskManagersPage } from "./pages/TaskManagers";
import { toast, Toasts } from "./ui/dialog";
import { Icon, Logo } from "./ui/icons";
import { Empty, Loading, Segments } from "./ui/parts";

// The editor is loaded when it is needed.
const SqlPage = lazy(async () => ({ default: (await import("./pages/Sql")).SqlPage }));

const PAGES = [
  { key: "", text: "Overview", icon: "overview" },
  { key: "jobs", text: "Jobs", icon: "jobs" },
  { key: "sql", text: "SQL", icon: "sql" },
  { key: "taskmanagers", text: "Task managers", icon: "managers" },
  { key: "cluster", text: "Cluster", icon: "cluster" },
];

export function App(): ReactElement {
  const route = useRoute();
  const { value, errors } = useTopic("overview");
  const main = useRef<HTMLElement>(null);
  const place = route.slice(0, 3).join("/");
  const section = route[0] === "submit" ? "jobs" : (route[0] ?? "");
  const title = PAGES.find((page) => page.key === section)?.text ?? "Penstock";
  useEffect(() => {
    document.title = `${title} · Penstock`;
    window.scrollTo(0, 0);
  }, [place, title]);
  const trouble = value?.why.filter((v) => v.severity === "error" || v.severity === "warning").length ?? 0;
  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Go to the content
      </a>
      <div className="side">
        <a className="brand" href={to()}>
          <Logo /> Penstock
        </a>
        <nav aria-label="Pages">
          {PAGES.map((page) => (
            <a key={page.key} href={page.key ? to(page.key) : to()} aria-current={page.key === section ? "page" : undefined}>
              <Icon name={page.icon} />
              {page.text}
              {page.key === "" && trouble > 0 && (
                <span className="badge warn plain" title={`${trouble} jobs need a look`}>
                  {trouble}
                </span>
              )}
            </a>
          ))}
        </nav>
        <div className="foot">
          <Who />
          <ThemeChoice />
          {value && <span>Penstock {value.overview["flink-version"].replace(/^penstock-/, "")}</span>}
        </div>
      </div>
      <main id="main" ref={main} tabIndex={-1}>
        <div className="who-narrow">
          <Who />
        </div>
        <Connection errors={errors} resourcemanager={value?.overview.resourcemanager} />
        <Suspense fallback={<Loading />}>
          <Page route={route} />
        </Suspense>
      </main>
      <Toasts />
    </div>
  );
}

function Page({ route }: { route: string[] }): ReactElement {
  const [section, ...rest] = route;
  switch (section) {
    case undefined:
      return <OverviewPage />;
    case "jobs":
      return rest[0] ? <JobPage key={rest[0]} id={rest[0]} tab={rest[1] ?? "graph"} rest={rest.slice(2)} /> : <JobsPage />;
    case "submit":
      return <SubmitPage />;
    case "sql":
      return <SqlPage />;
    case "taskmanagers":
      return rest[0] ? <TaskManagerPage key={rest[0]} id={rest[0]} tab={rest[1] ?? "slots"} file={rest[2]} /> : <TaskManagersPage />;
    case "cluster":
      return <ClusterPage tab={rest[0] ?? "processes"} />;
    default:
      return (
        <Empty title="There is no such page">
          <a href={to()}>Go to the overview</a>
        </Empty>
      );
  }
}

function Connection({ errors, resourcemanager }: { errors: string[] | undefined; resourcemanager: boolean | undefined }): ReactElement | null {
  const connected = useConnected();
  const config = useLoaded("config", () => data(api.GET("/config")));
  if (!connected) {
    return (
      <div className="notice bad" role="alert">
        The dispatcher does not answer. What you see may be old; the page tries again by itself.
      </div>
    );
  }
  if (errors) return <div className="notice bad">{errors.join("\n")}</div>;
  if (config.value?.features["web-history"]) {
    return <div className="notice">This is a history server: it shows jobs that have ended, and can start or change nothing.</div>;
  }
  if (resourcemanager === false) {
    return <div className="notice">No resource manager leads at the moment: running jobs run on, but none gets new slots.</div>;
  }
  return null;
}

/** Who is logged in, and the way out. Nobody is where the cluster asks for no login; a certificate cannot be taken back. */
function Who(): ReactElement | null {
  const who = useIdentity();
  if (who?.via !== "session") return null;
  return (
    <div className="who">
      <span className="clip" title={`${who.name}, role ${who.role}`}>
        {who.name} <small>{who.role}</small>
      </span>
      <button type="button" className="button" onClick={() => void logOut().catch((error: unknown) => toast((error as Error).message, true))}>
        Log out
      </button>
    </div>
  );
}

function ThemeChoice(): ReactElement {
  const { choice } = useTheme();
  const items: { key: Choice; text: string }[] = [
    { key: "auto", text: "Auto" },
    { key: "light", text: "Light" },
    { key: "dark", text: "Dark" },
  ];
  return <Segments label="Colours" items={items} value={choice} onChange={choose} />;
}
