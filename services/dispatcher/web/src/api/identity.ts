/** Who looks at the page, as the server sees it, and the way out. */
import { api, data, useLoaded, type Schemas } from "./client";

export function useIdentity(): Schemas["Sender"] | undefined {
  return useLoaded("whoami", () => data(api.GET("/whoami"))).value;
}

/** Takes the browser's login back and shows the login page. Throws an Error if the server does not answer. */
export async function logOut(): Promise<void> {
  const { end } = await import("../sql/store");
  await end(); // whoever logs in next in this tab must not find the session
  try {
    sessionStorage.clear();
  } catch {
    // A browser that forbids storage has kept nothing.
  }
  const answer = await fetch("./logout", { method: "POST" });
  if (!answer.ok) throw new Error(`The login could not be taken back: ${answer.status} ${answer.statusText}`);
  window.location.assign("./login");
}
