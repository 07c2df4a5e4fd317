/** The editor: highlighting, completion of what the session knows, and marks where errors stand. */
import { useEffect, useRef, type ReactElement } from "react";
import { acceptCompletion, autocompletion } from "@codemirror/autocomplete";
import { SQLDialect, sql, type SQLNamespace } from "@codemirror/lang-sql";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";
import type { CatalogFacts } from "./gateway";
import { extent, type Place } from "./statements";

const TYPES = "boolean tinyint smallint int integer bigint float double decimal numeric char varchar string binary varbinary bytes date time timestamp timestamp_ltz array map multiset row";

export interface Mark {
  place: Place;
  text: string;
}

export interface Words {
  facts: CatalogFacts;
  schema: SQLNamespace;
}

interface Props {
  initial: string;
  words: Words | undefined;
  marks: Mark[];
  onChange: (text: string) => void;
  onRun: () => void;
  onView: (view: EditorView | undefined) => void;
}

const HIGHLIGHT = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--s4)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--ok)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: tags.comment, color: "var(--dim)", fontStyle: "italic" },
]);

const LOOK = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--ink)", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", maxHeight: "46vh" },
  ".cm-content, .cm-gutter": { minHeight: "200px" },
  ".cm-content": { caretColor: "var(--ink)", padding: "10px 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--dim)", border: "0" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  ".cm-activeLineGutter": { backgroundColor: "var(--accent-soft)", color: "var(--ink)" },
  ".cm-placeholder": { color: "var(--dim)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--line-strong)", borderRadius: "8px", boxShadow: "var(--shadow-high)", overflow: "hidden" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", fontStyle: "normal", opacity: "0.85" },
  ".cm-diagnostic": { whiteSpace: "pre-wrap", maxWidth: "560px" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
});

function language(words: Words | undefined) {
  const dialect = SQLDialect.define({
    keywords: (words?.facts.keywords ?? []).join(" ").toLowerCase(),
    types: TYPES,
    // Some have names of several words (EXTRACT … FROM), of which each would count for itself.
    builtin: (words?.facts.functions ?? []).map((f) => f.name.toLowerCase()).filter((name) => /^\w+$/.test(name)).join(" "),
    identifierQuotes: "`",
    operatorChars: "*+-%<>!=&|~^/",
  });
  return sql({ dialect, upperCaseKeywords: true, ...(words ? { schema: words.schema } : {}) });
}

export function Editor({ initial, words, marks, onChange, onRun, onView }: Props): ReactElement {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | undefined>(undefined);
  const spoken = useRef(new Compartment());
  const latest = useRef({ onChange, onRun });
  latest.current = { onChange, onRun };

  useEffect(() => {
    if (!place.current) return;
    const run = () => (latest.current.onRun(), true);
    const made = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: initial,
        extensions: [
          Prec.highest(keymap.of([{ key: "Mod-Enter", run }, { key: "Tab", run: acceptCompletion }])),
          basicSetup,
          autocompletion({ activateOnTyping: true, maxRenderedOptions: 60 }),
          spoken.current.of(language(undefined)),
          syntaxHighlighting(HIGHLIGHT),
          LOOK,
          placeholder("SELECT …"),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "SQL statements. Control and Enter run the one at the cursor." }),
          EditorView.updateListener.of((update) => update.docChanged && latest.current.onChange(update.state.doc.toString())),
        ],
      }),
    });
    view.current = made;
    onView(made);
    return () => {
      onView(undefined);
      made.destroy();
    };
    // The editor keeps its own text from here on.
  }, []);

  useEffect(() => {
    view.current?.dispatch({ effects: spoken.current.reconfigure(language(words)) });
  }, [words]);

  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    const script = editor.state.doc.toString();
    const found = marks.map((mark) => ({ ...extent(script, mark.place), severity: "error" as const, message: mark.text }));
    editor.dispatch(setDiagnostics(editor.state, found));
  }, [marks]);

  return <div ref={place} className="sql-editor" />;
}

/** Moves the cursor to a place and shows it. */
export function jump(view: EditorView | undefined, place: Place): void {
  if (!view) return;
  const { from } = extent(view.state.doc.toString(), place);
  view.dispatch({ selection: { anchor: from }, scrollIntoView: true });
  view.focus();
}

/** Writes a text where the cursor is, with a space before it where words would meet. */
export function insert(view: EditorView | undefined, text: string): void {
  if (!view) return;
  const { from, to } = view.state.selection.main;
  const before = view.state.sliceDoc(Math.max(0, from - 1), from);
  const written = /[\w`]/.test(before) ? ` ${text}` : text;
  view.dispatch({ changes: { from, to, insert: written }, selection: { anchor: from + written.length }, scrollIntoView: true });
  view.focus();
}
