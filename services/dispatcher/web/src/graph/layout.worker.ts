/** Computes where vertices and edges stand, beside the page's own thread. */
import { layout, type Asked } from "./layout";

self.onmessage = (event: MessageEvent<{ turn: number; asked: Asked }>) => {
  self.postMessage({ turn: event.data.turn, placed: layout(event.data.asked) });
};
