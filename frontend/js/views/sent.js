// The request that went out last, with the model server's own count beside our estimate.

import { useApp } from "./context.js";
import { html } from "./html.js";
import { Meter, Parts, partsOf, ToolText } from "./request-parts.js";

export function Sent({ sent }) {
  const { t, number, dateTime } = useApp();
  if (!sent) return html`<p class="muted small" data-sent="none">${t("sent.none")}</p>`;
  const parts = partsOf(sent).map((part) => (part.name === "new" ? { ...part, label: "asked" } : part));
  const { total_tokens: estimated, prompt_tokens: counted, num_ctx: limit, left_out_messages: left } = sent;
  return html`<div data-sent=${sent.turn_id}>
    <p class="total">${counted === null && html`<span title=${t("inspector.estimated")}>≈ </span>`}${number(counted ?? estimated)} / ${number(limit)} <span class="muted">${t("inspector.tokens", { count: limit })}</span></p>
    <${Meter} parts=${parts} limit=${limit} counted=${counted} />
    <p class="small counted" data-difference><${Difference} estimated=${estimated} counted=${counted} isCut=${sent.prompt_cut} /></p>
    <p class="muted small">${dateTime(sent.at)} · ${sent.model}</p>
    ${left > 0 && html`<p class="small">${t("message.leftOut", { count: left })}</p>`}
    <${Parts} parts=${parts}>${(part) => part.name === "tools" && sent.tools.map((tool) => html`<${ToolText} key=${tool.name} tool=${tool} />`)}<//>
  </div>`;
}

// Far below the estimate, and no cut: then it is a server that leaves out what it had read before.
const FAR_BELOW = 0.5;

function Difference({ estimated, counted, isCut }) {
  const { t } = useApp();
  if (counted === null) return t("sent.uncounted", { estimated });
  const more = counted - estimated;
  if (more === 0) return t("sent.same");
  const words = t(more > 0 ? "sent.more" : "sent.fewer", { count: Math.abs(more), estimated });
  return counted < estimated * FAR_BELOW && !isCut ? `${words} ${t("sent.cached")}` : words;
}
