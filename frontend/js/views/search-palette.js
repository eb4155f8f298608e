// Search over everything that was said: chats by their titles at once, messages as the server finds them.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import { isComposing } from "../keys.js";
import { emphasise, hitsByChat } from "../search-text.js";
import { chatsByTitle } from "../selectors.js";
import { useApp } from "./context.js";
import { useModal } from "./dialog.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { ErrorText } from "./messages.js";

const MOST_TITLES = 6;
const MOST_HITS = 40;

// Someone who types fast would ask for every beginning of a word.
const PAUSE_MS = 150;

export function SearchPalette({ close }) {
  const { t, store, actions } = useApp();
  const [query, setQuery] = useState("");
  const [index, setIndex] = useState(0);
  const list = useRef(null);
  const id = useId();
  const found = useMessages(query);
  const chats = chatsByTitle(store.workspace.value.chats, query).slice(0, MOST_TITLES);
  const groups = hitsByChat(found.hits);
  const ways = [
    ...chats.map((chat) => () => actions.openChat(chat.id)),
    ...groups.flatMap(({ hits }) => hits.map((hit) => () => actions.showMessage(hit.chat_id, hit.message_id))),
  ];
  const current = Math.min(index, ways.length - 1);
  useEffect(() => {
    list.current.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [current]);

  const choose = (place) => {
    if (!ways[place]) return;
    close();
    ways[place]();
  };
  const onKeyDown = (event) => {
    if (isComposing(event)) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const again = (event.ctrlKey || event.metaKey) && event.code === "KeyK";
    if (!step && !again && event.key !== "Enter") return;
    event.preventDefault();
    if (step && ways.length) setIndex((current + step + ways.length) % ways.length);
    else if (again) close();
    else if (event.key === "Enter") choose(current);
  };
  const type = (event) => {
    setQuery(event.target.value);
    setIndex(0);
  };
  const option = (place) => ({ id: `${id}-${place}`, "aria-selected": place === current, role: "option", onClick: () => choose(place), onPointerMove: () => setIndex(place) });
  let place = chats.length;
  return html`<dialog ...${useModal(close)} class="palette" aria-label=${t("search.title")} data-dialog="search">
    <label class="palette-field"><${Icon} name="search" /><input type="text" role="combobox" autocomplete="off" placeholder=${t("search.placeholder")} aria-label=${t("search.placeholder")}
      aria-autocomplete="list" aria-expanded=${ways.length > 0} aria-controls=${`${id}-list`} aria-activedescendant=${ways.length ? `${id}-${current}` : undefined}
      value=${query} onInput=${type} onKeyDown=${onKeyDown} /></label>
    <div class="palette-list" role="listbox" id=${`${id}-list`} aria-label=${t("search.title")} ref=${list}>
      ${chats.length > 0 && html`<${Group} id=${`${id}-titles`} title=${t(query.trim() ? "search.chats" : "search.recent")}>
        ${chats.map((chat, i) => html`<div key=${chat.id} ...${option(i)} data-search-chat=${chat.id} class="palette-option">
          <span class="palette-text" dir="auto"><${Meant} text=${chat.title || t("chat.untitled")} query=${query} /></span><${When} iso=${chat.updated_at} /></div>`)}
      <//>`}
      ${groups.map((group) => html`<${Group} key=${group.chatId} id=${`${id}-${group.chatId}`} title=${group.title || t("chat.untitled")}>
        ${group.hits.map((hit) => html`<${Hit} key=${hit.message_id} hit=${hit} query=${found.query} option=${option(place++)} />`)}
      <//>`)}
    </div>
    <div class="palette-state" role="status"><${State} query=${query} found=${found} none=${ways.length === 0} /></div>
  </dialog>`;
}

function Group({ id, title, children }) {
  return html`<div role="group" aria-labelledby=${id}><div class="palette-group" role="presentation" id=${id} dir="auto">${title}</div>${children}</div>`;
}

function Hit({ hit, query, option }) {
  const { t, has } = useApp();
  const role = `role.${hit.role}`;
  return html`<div ...${option} data-search-hit=${hit.message_id} class="palette-option">
    <span class="palette-text" dir="auto"><${Meant} text=${hit.snippet} query=${query} /></span>
    <small>${has(role) ? t(role) : hit.role} · <${When} iso=${hit.created_at} /></small></div>`;
}

const Meant = ({ text, query }) => emphasise(text, query).map((piece) => (piece.meant ? html`<mark>${piece.text}</mark>` : piece.text));

function When({ iso }) {
  const { when } = useApp();
  return html`<time datetime=${iso}>${when(iso)}</time>`;
}

function State({ query, found, none }) {
  const { t } = useApp();
  if (found.error) return html`<${ErrorText} error=${found.error} />`;
  if (!found.online) return html`<p>${t("search.offline")}</p>`;
  if (found.pending) return html`<p>${t("search.pending")}</p>`;
  return none && html`<p>${query.trim() ? t("search.none", { query: query.trim() }) : t("search.empty")}</p>`;
}

/** Messages for the query as `{query, hits, error?, online, pending}`. A reply that another query overtook is not shown. */
function useMessages(query) {
  const { store, actions } = useApp();
  const online = store.workspace.value.connection === "open";
  const wanted = online ? query.trim() : "";
  const [found, setFound] = useState({ query: "", hits: [] });
  useEffect(() => {
    if (!wanted) {
      setFound({ query: "", hits: [] });
      return undefined;
    }
    let current = true;
    const show = (reply) => current && setFound({ query: wanted, hits: [], ...reply });
    const ask = () => actions.searchChats(wanted, MOST_HITS).then(show, (error) => (error.code ? show({ error }) : actions.report(error)));
    const timer = setTimeout(ask, PAUSE_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [wanted]);
  return { ...found, online, pending: found.query !== wanted };
}
