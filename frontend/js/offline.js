// Keeps a page for when the server can't be reached: starts the worker that shows it and tells it the language.

/** `language` is a signal. Browsers have a `container` on https and on this machine only; without one nothing else is lost. */
export async function keepOfflinePage(container, language) {
  if (!container) return;
  await container.register("/sw.js");
  const registration = await container.ready;
  language.subscribe((now) => registration.active.postMessage({ language: now }));
}
