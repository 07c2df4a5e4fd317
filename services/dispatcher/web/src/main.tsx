import { createRoot } from "react-dom/client";
import { App } from "./app";
import { startHistory } from "./lib/history";
import { startTheme } from "./lib/theme";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/graph.css";
import "./styles/sql.css";

startTheme();
startHistory();
const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
