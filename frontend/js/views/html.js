// Templates for the views: htm bound to Preact, and a component that draws again only when its props changed.

import { Component, h } from "preact";
import htm from "htm";

export const html = htm.bind(h);

const sameProps = (a, b) => Object.keys({ ...a, ...b }).every((key) => a[key] === b[key]);

export function memo(view, same = sameProps) {
  return class Memo extends Component {
    shouldComponentUpdate(next) {
      return !same(this.props, next);
    }
    render(props) {
      return h(view, props);
    }
  };
}
