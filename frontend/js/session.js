// A login that ended looks like a lost connection: browsers don't tell why a WebSocket was refused. So the page asks.

const LOGIN = "/login";

/** Go to the login page when the server no longer knows this browser. What was typed is stored and waits there. */
export async function logInAgain({ fetch, go }) {
  const answer = await fetch("/", { method: "HEAD", cache: "no-store" }).catch(() => null);
  if (answer?.status === 401) go(LOGIN);
}
