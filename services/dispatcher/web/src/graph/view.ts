/** Which part of a plane is shown: moved with a pointer or keys, zoomed with the wheel or two fingers. */
export interface View {
  x: number;
  y: number;
  scale: number;
}

export const LEAST = 0.06;
export const MOST = 1.6;

/** The view that shows a whole plane in a window, at most at its natural size. */
export function fitted(plane: { width: number; height: number }, window: { width: number; height: number }): View {
  const scale = Math.max(LEAST, Math.min(1, window.width / plane.width, window.height / plane.height));
  return { scale, x: (window.width - scale * plane.width) / 2, y: (window.height - scale * plane.height) / 2 };
}

/** The view zoomed by a factor; the point (of the window) stays where it is. */
export function zoomed(view: View, factor: number, at: { x: number; y: number }): View {
  const scale = Math.min(MOST, Math.max(LEAST, view.scale * factor));
  const real = scale / view.scale;
  return { scale, x: at.x - real * (at.x - view.x), y: at.y - real * (at.y - view.y) };
}
