// Draws what changed between two texts, line by line, with the changed words marked.

import { useMemo } from "preact/hooks";
import { diffRows, diffSize, foldContext } from "../diff.js";
import { Fold, Revealed } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";

export const useDiff = (card) => useMemo(() => (card.kind === "diff" ? diffRows(card.before ?? "", card.after ?? "") : []), [card]);

export function DiffSize({ rows }) {
  const { t, number } = useApp();
  const { added, removed } = diffSize(rows);
  return html`<span class="diff-size" title=${t("diff.size")}>+${number(added)} −${number(removed)}</span>`;
}

export const DiffView = ({ rows }) => html`<${Fold} class="diff">${foldContext(rows).map((row, i) => html`<${Row} key=${i} ...${row} />`)}<//>`;

function Row({ kind, parts, count }) {
  const { t } = useApp();
  if (kind === "skipped") return html`<div class="diff-row skipped">${t("diff.skipped", { count })}</div>`;
  const whole = parts.every((part) => part.changed);
  return html`<div class=${`diff-row ${kind} ${whole ? "whole" : ""}`}>
    ${kind !== "same" && html`<span class="visually-hidden">${t(kind === "added" ? "diff.added" : "diff.removed")} </span>`}
    ${parts.map(({ text, changed }, i) => {
      const body = html`<${Revealed} text=${text} />`;
      if (!changed) return html`<span key=${i}>${body}</span>`;
      return kind === "added" ? html`<ins key=${i}>${body}</ins>` : html`<del key=${i}>${body}</del>`;
    })}
  </div>`;
}
