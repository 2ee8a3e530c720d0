package profile

import (
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"weft.dev/weft/internal/shared"
)

func TestNamedShapes(t *testing.T) {
	names := ShapeNames()
	if !slices.IsSorted(names) || len(names) < 5 || !slices.Contains(names, "flat") {
		t.Errorf("names %v", names)
	}
	for _, name := range append(names, "") {
		shape, ok := NamedShape(name)
		if !ok {
			t.Errorf("no shape %q", name)
		}
		if name == "flat" || name == "" {
			if len(shape) != 0 {
				t.Errorf("%q has levels: %v", name, shape)
			}
			continue
		}
		sum := 0.0
		for _, f := range shape {
			if f <= 0 {
				t.Errorf("%s has the share %v", name, f)
			}
			sum += f
		}
		if math.Abs(sum-1) > 1e-12 || len(shape) != 12 {
			t.Errorf("%s has %d levels, which sum to %v", name, len(shape), sum)
		}
		shape[0] = 7 // a caller's own copy
		if again, _ := NamedShape(name); again[0] == 7 {
			t.Errorf("%s can be changed by a caller", name)
		}
	}
	if shape, ok := NamedShape("Flat"); ok || len(shape) != 0 {
		t.Errorf("an unknown name has the shape %v, %t", shape, ok)
	}
}

// curves are the recorded curves that the shapes were computed from: time in the first column, bytes in the second.
var curves = map[string]string{
	"resnet50-w0":          "memory_curves/kineto_resnet50_w0_a.csv",
	"resnet50-w4":          "memory_curves/kineto_resnet50_w4_a.csv",
	"v100-training":        "memory_curves/hta_v100_training_total.csv",
	"training-categorised": "memory_curves/hta_categorised_timeline.csv",
}

// TestShapesAgreeWithTheCurves computes each shape anew: the share of time in each of twelve equal levels between the
// least and the most that the curve ever holds.
func TestShapesAgreeWithTheCurves(t *testing.T) {
	if len(curves) != len(ShapeNames())-1 {
		t.Errorf("%d curves for the shapes %v", len(curves), ShapeNames())
	}
	for name, file := range curves {
		t.Run(name, func(t *testing.T) {
			shape, _ := NamedShape(name)
			for i, share := range timeShares(t, shared.Data(t, file)) {
				if math.Abs(share-shape[i]) > 0.001 {
					t.Errorf("level %d: %.4f of the time, the shape says %.4f", i+1, share, shape[i])
				}
			}
		})
	}
}

func timeShares(t *testing.T, path string) (shares [12]float64) {
	t.Helper()
	times, bytes := readCurve(t, path)
	least, most := slices.Min(bytes), slices.Max(bytes)
	total := times[len(times)-1] - times[0]
	for i, b := range bytes[:len(bytes)-1] {
		level := max(0, int(math.Ceil((b-least)/(most-least)*float64(len(shares))))-1)
		shares[level] += (times[i+1] - times[i]) / total
	}
	return shares
}

func readCurve(t *testing.T, path string) (times, bytes []float64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		at, errTime := strconv.ParseFloat(row[0], 64)
		b, errBytes := strconv.ParseFloat(row[1], 64)
		if errTime != nil || errBytes != nil {
			t.Fatalf("row %v of %s", row, path)
		}
		times, bytes = append(times, at), append(bytes, b)
	}
	return times, bytes
}
