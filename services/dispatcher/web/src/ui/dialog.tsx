/** Dialogs that say what a command will do before it does it, and short messages. */
import { useEffect, useId, useRef, useState, useSyncExternalStore, type ReactElement, type ReactNode } from "react";

export interface Question {
  title: string;
  /** What will happen, a line each. */
  will: string[];
  confirm: string;
  bad?: boolean;
  children?: ReactNode;
  run: (form: FormData) => Promise<string | void>;
  onClose: () => void;
}

export function Dialog(question: Question): ReactElement {
  const element = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const title = useId();
  useEffect(() => element.current?.showModal(), []);
  const submit = async (form: HTMLFormElement) => {
    setBusy(true);
    setError(undefined);
    try {
      const said = await question.run(new FormData(form));
      if (said) toast(said);
      question.onClose();
    } catch (problem) {
      setError((problem as Error).message);
      setBusy(false);
    }
  };
  return (
    <dialog ref={element} aria-labelledby={title} onClose={question.onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        <h2 id={title}>{question.title}</h2>
        <ul className="what">
          {question.will.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
        {question.children}
        {error && (
          <div className="notice bad" role="alert">
            <pre>{error}</pre>
          </div>
        )}
        <div className="buttons">
          <button type="button" className="button" onClick={() => element.current?.close()}>
            Keep as is
          </button>
          <button type="submit" className={`button main ${question.bad ? "bad" : ""}`} disabled={busy}>
            {busy ? "Working …" : question.confirm}
          </button>
        </div>
      </form>
    </dialog>
  );
}

// -- messages ------------------------------------------------------------------------------------

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

let toasts: Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function change(next: Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

/** Shows a message for some seconds. */
export function toast(text: string, bad = false): void {
  const id = ++last;
  change([...toasts, { id, text, bad }]);
  window.setTimeout(() => change(toasts.filter((t) => t.id !== id)), bad ? 15000 : 7000);
}

export function Toasts(): ReactElement {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
  return (
    <div className="toast" role="status" aria-live="polite">
      {shown.map((t) => (
        <div key={t.id} className={t.bad ? "bad" : ""}>
          {t.text}
        </div>
      ))}
    </div>
  );
}
