/** Moves and zooms a layer without React: only the layer's transform changes, which costs no layout. */
import { useCallback, useEffect, useRef, type RefObject } from "react";
import { fitted, zoomed, type View } from "./view";

const FAR = 0.55;
const STEP = 60;

interface Controls {
  fit: () => void;
  zoom: (factor: number) => void;
  /** Moves a place of the plane into the window if it is outside. */
  reveal: (place: { x: number; y: number; width: number; height: number }) => void;
}

export function usePanZoom(frame: RefObject<HTMLDivElement | null>, layer: RefObject<HTMLDivElement | null>, plane: { width: number; height: number } | undefined): Controls {
  const view = useRef<View>({ x: 0, y: 0, scale: 1 });
  const due = useRef(0);

  const show = useCallback(
    (next: View) => {
      view.current = next;
      if (due.current) return;
      due.current = requestAnimationFrame(() => {
        due.current = 0;
        const { x, y, scale } = view.current;
        if (layer.current) layer.current.style.transform = `translate(${x}px,${y}px) scale(${scale})`;
        frame.current?.classList.toggle("far", scale < FAR);
      });
    },
    [frame, layer],
  );

  const fit = useCallback(() => {
    const box = frame.current;
    if (box && plane) show(fitted(plane, { width: box.clientWidth, height: box.clientHeight }));
  }, [frame, plane, show]);

  const zoom = useCallback(
    (factor: number) => {
      const box = frame.current;
      if (box) show(zoomed(view.current, factor, { x: box.clientWidth / 2, y: box.clientHeight / 2 }));
    },
    [frame, show],
  );

  const reveal = useCallback(
    (place: { x: number; y: number; width: number; height: number }) => {
      const box = frame.current;
      if (!box) return;
      // The browser scrolls the frame to what gets the focus; the view moves instead.
      box.scrollTo(0, 0);
      const { x, y, scale } = view.current;
      const [left, top] = [x + scale * place.x, y + scale * place.y];
      const [width, height] = [scale * place.width, scale * place.height];
      const inside = left >= 0 && top >= 0 && left + width <= box.clientWidth && top + height <= box.clientHeight;
      if (!inside) show({ scale, x: x + (box.clientWidth - width) / 2 - left, y: y + (box.clientHeight - height) / 2 - top });
    },
    [frame, show],
  );

  useEffect(fit, [fit]);

  useEffect(() => {
    const box = frame.current;
    if (!box) return;
    const pointers = new Map<number, { x: number; y: number }>();
    let moved = 0;
    const at = (event: { clientX: number; clientY: number }) => {
      const { left, top } = box.getBoundingClientRect();
      return { x: event.clientX - left, y: event.clientY - top };
    };
    const onWheel = (event: WheelEvent) => {
      // A page scrolls with the plain wheel; the graph zooms with Ctrl, as maps do, or when it has the focus.
      if (!event.ctrlKey && !box.contains(document.activeElement)) return;
      event.preventDefault();
      show(zoomed(view.current, Math.exp(-event.deltaY * (event.ctrlKey ? 0.008 : 0.0016)), at(event)));
    };
    const onDown = (event: PointerEvent) => {
      if (event.button !== 0 || (event.target as Element).closest(".tools")) return;
      pointers.set(event.pointerId, at(event));
      moved = 0;
    };
    const onMove = (event: PointerEvent) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = at(event);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const factor = Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
        show(zoomed(view.current, factor, other));
      } else {
        moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
        if (moved > 4 && !box.hasPointerCapture(event.pointerId)) {
          box.setPointerCapture(event.pointerId);
          box.classList.add("moving");
        }
        show({ ...view.current, x: view.current.x + now.x - before.x, y: view.current.y + now.y - before.y });
      }
      pointers.set(event.pointerId, now);
    };
    const onUp = (event: PointerEvent) => {
      pointers.delete(event.pointerId);
      box.classList.remove("moving");
    };
    const onClick = (event: MouseEvent) => {
      if (moved > 4) {
        event.stopPropagation();
        event.preventDefault();
        moved = 0;
      }
    };
    const onKey = (event: KeyboardEvent) => {
      const steps: Record<string, [number, number]> = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
      const step = steps[event.key];
      if (step) show({ ...view.current, x: view.current.x + step[0], y: view.current.y + step[1] });
      else if (event.key === "+" || event.key === "=") zoom(1.25);
      else if (event.key === "-") zoom(0.8);
      else if (event.key === "0") fit();
      else return;
      event.preventDefault();
    };
    box.addEventListener("wheel", onWheel, { passive: false });
    box.addEventListener("pointerdown", onDown);
    box.addEventListener("pointermove", onMove);
    box.addEventListener("pointerup", onUp);
    box.addEventListener("pointercancel", onUp);
    box.addEventListener("click", onClick, true);
    box.addEventListener("keydown", onKey);
    const watcher = new ResizeObserver(() => fit());
    watcher.observe(box);
    return () => {
      watcher.disconnect();
      box.removeEventListener("wheel", onWheel);
      box.removeEventListener("pointerdown", onDown);
      box.removeEventListener("pointermove", onMove);
      box.removeEventListener("pointerup", onUp);
      box.removeEventListener("pointercancel", onUp);
      box.removeEventListener("click", onClick, true);
      box.removeEventListener("keydown", onKey);
    };
  }, [frame, show, fit, zoom]);

  return { fit, zoom, reveal };
}
