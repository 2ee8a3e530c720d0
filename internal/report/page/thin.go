package page

import "math"

// point is a step of a curve in the plane of its plot: x and y in [0, 1], y upwards. From x on, the curve is at y.
type point struct{ x, y float64 }

// maxPoints bounds a drawn curve. A plot is at most about 1,000 pixels wide, so it shows what a screen can show, and 20
// curves of any number of jobs stay far below a megabyte.
const maxPoints = 400

// thin keeps at most maxPoints points of a curve in order of x: of each of many equal stretches the first, the lowest,
// the highest and the last point (the M4 aggregation of Jugel et al., VLDB 2014, whose line is the same to the pixel
// where a stretch is one pixel wide). So the first and last point and both extremes of the curve always stay. Among
// equal extremes the earliest stays. There are maxPoints/2 stretches where that suffices, as for a rising curve, whose
// lowest and highest points are its first and last; else maxPoints/4. Linear in the number of points.
func thin(points []point) []point {
	if len(points) <= maxPoints {
		return points
	}
	if kept := aggregate(points, maxPoints/2); len(kept) <= maxPoints {
		return kept
	}
	return aggregate(points, maxPoints/4)
}

func aggregate(points []point, stretches int) []point {
	kept := make([]point, 0, maxPoints)
	for from := 0; from < len(points); {
		stretch := stretchOf(points[from].x, stretches)
		to := from
		lowest, highest := from, from
		for ; to < len(points) && stretchOf(points[to].x, stretches) == stretch; to++ {
			if points[to].y < points[lowest].y {
				lowest = to
			}
			if points[to].y > points[highest].y {
				highest = to
			}
		}
		last := from - 1
		for _, i := range []int{from, min(lowest, highest), max(lowest, highest), to - 1} {
			if i > last {
				kept = append(kept, points[i])
				last = i
			}
		}
		from = to
	}
	return kept
}

func stretchOf(x float64, stretches int) int {
	return min(int(math.Floor(x*float64(stretches))), stretches-1)
}
