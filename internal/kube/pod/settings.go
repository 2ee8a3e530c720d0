package pod

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/spelling"
	"weft.dev/weft/internal/unit"
)

// domain begins the keys of all labels and annotations of weft.
const domain = "weft.dev/"

// written are the annotations that users write, in the order of documentation, and own those that weft writes. Each of optIn
// opts a Pod in.
var (
	optIn   = []string{kube.AnnotationFloor, kube.AnnotationClass, kube.AnnotationMemory, kube.AnnotationProfile, kube.AnnotationGang}
	written = append(slices.Clone(optIn), kube.AnnotationMigratable)
	own     = []string{kube.AnnotationClaims, kube.AnnotationGPU, kube.AnnotationMoved, kube.AnnotationReminded}
)

// Limits of what users write.
const (
	leastMemory   = unit.MiB * 256 // that an allocation can have: contexts of the driver take about as much
	mostMemory    = unit.TiB       // more than any GPU has, and a slip of the pen
	mostGang      = 10000
	longestName   = 200
	mostGPUs      = 32 // of a container: a claim has room for 32 requests (resource.k8s.io/v1 DeviceRequestsMaxSize)
	wholePercent  = 100
	classStandard = "burstable"
)

// annotation is the path of an annotation.
func annotation(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }

// label is the path of a label.
func label(key string) *field.Path { return field.NewPath("metadata", "labels").Key(key) }

// settings reads what the annotations say: a request without its workers.
func settings(p *corev1.Pod, d Defaults) (Request, field.ErrorList) {
	r := Request{Floor: d.floor(), Class: d.Class, Gang: 1}
	var faults field.ErrorList
	for _, key := range written {
		text, stated := p.Annotations[key]
		if !stated {
			continue
		}
		if f := r.set(key, strings.TrimSpace(text)); f != nil {
			faults = append(faults, f)
		}
	}
	return r, faults
}

// floor is the floor of Pods that name none.
func (d Defaults) floor() float64 {
	if d.Floor > 0 && d.Floor <= 1 {
		return d.Floor
	}
	return StandardFloor
}

// clamp is the nearest floor that the namespace allows.
func (d Defaults) clamp(floor float64) float64 {
	if d.MaxFloor > 0 {
		floor = min(floor, d.MaxFloor)
	}
	return max(floor, d.MinFloor)
}

// set takes the value of one annotation.
func (r *Request) set(key, text string) *field.Error {
	at := annotation(key)
	var fault *field.Error
	switch key {
	case kube.AnnotationFloor:
		r.Floor, fault = readFloor(at, text)
	case kube.AnnotationClass:
		r.Class, fault = readClass(at, text)
	case kube.AnnotationMemory:
		r.Peak, fault = readMemory(at, text)
	case kube.AnnotationProfile:
		r.Profile, fault = readProfile(at, text)
	case kube.AnnotationGang:
		r.Gang, fault = readGang(at, text)
	case kube.AnnotationMigratable:
		r.Migratable = text == "true"
		if text != "true" && text != "false" {
			fault = field.NotSupported(at, text, []string{"true", "false"})
		}
	}
	return fault
}

// decimal is a plain number: 0.9, .9, 1.
var decimal = regexp.MustCompile(`^-?([0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})$`)

// readFloor reads a share of the speed alone.
func readFloor(at *field.Path, text string) (float64, *field.Error) {
	number, percent := strings.CutSuffix(text, "%")
	number = strings.TrimSpace(number)
	if !decimal.MatchString(number) {
		return 0, field.Invalid(at, text, "not a number: write 0.9 for 90 % of the speed alone")
	}
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return 0, field.Invalid(at, text, "not a number: write 0.9 for 90 % of the speed alone")
	case v > 0 && v <= wholePercent && (percent || v >= 2):
		return 0, field.Invalid(at, text, "write "+strconv.FormatFloat(math.Round(v*1e4)/1e6, 'f', -1, 64))
	case percent || v > 1:
		return 0, field.Invalid(at, text, "outside (0, 1]: write 0.9 for 90 % of the speed alone")
	case v <= 0:
		return 0, field.Invalid(at, text, "outside (0, 1]: for a low floor write 0.05, with weft.dev/class: besteffort")
	}
	return v, nil
}

func readClass(at *field.Path, text string) (cluster.Class, *field.Error) {
	class, known := cluster.ParseClass(text)
	if !known || text == "" {
		return 0, field.NotSupported(at, text, []string{"guaranteed", classStandard, "besteffort"})
	}
	return class, nil
}

// readMemory reads the peak of each GPU.
func readMemory(at *field.Path, text string) (unit.Bytes, *field.Error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		if bytes, err := unit.ParseBytes(text); err == nil && bytes >= leastMemory && bytes <= mostMemory {
			return 0, field.Invalid(at, text, "write "+quantity(bytes))
		}
		return 0, field.Invalid(at, text, "not a quantity of bytes: write 8Gi")
	}
	bytes := unit.Bytes(q.Value()) // rounded up
	switch {
	case q.Sign() <= 0:
		return 0, field.Invalid(at, text, "not above 0: write 8Gi, or leave it out where it is not known")
	case bytes < leastMemory:
		return 0, field.Invalid(at, text, "less than a program on a GPU holds (256Mi), and a number without a unit is bytes: write 8Gi")
	case bytes > mostMemory || q.CmpInt64(int64(mostMemory)) > 0:
		return 0, field.Invalid(at, text, "more than any GPU has: write what the program holds on one GPU, such as 8Gi")
	}
	return bytes, nil
}

// quantity writes an amount of memory as Kubernetes does.
func quantity(b unit.Bytes) string {
	return resource.NewQuantity(int64(b), resource.BinarySI).String()
}

// profileName is a name of an object or of the catalogue, whose models have brackets and capitals: "ResNet-18:16".
var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ()_.:/+-]*$`)

func readProfile(at *field.Path, text string) (string, *field.Error) {
	if len(text) > longestName || !profileName.MatchString(text) {
		return "", field.Invalid(at, text, "write the name of a WorkloadProfile of this namespace, or model:batch of weft catalogue")
	}
	return text, nil
}

func readGang(at *field.Path, text string) (int, *field.Error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostGang {
		return 0, field.Invalid(at, text, fmt.Sprintf("write how many Pods start together, 1 to %d", mostGang))
	}
	return n, nil
}

// strangers are faults of keys that no user writes: misspelt ones, those that weft writes, and annotations written as labels. A
// managed Pod has some of weft's own.
func strangers(p *corev1.Pod, managed bool) field.ErrorList {
	var faults field.ErrorList
	for _, key := range sortedKeys(p.Annotations) {
		switch {
		case !strings.HasPrefix(key, domain) || slices.Contains(written, key):
		case slices.Contains(own, key):
			if !managed {
				faults = append(faults, field.Forbidden(annotation(key), "weft writes it: remove it"))
			}
		default:
			faults = append(faults, field.Invalid(annotation(key), p.Annotations[key], unknown(key)))
		}
	}
	for _, key := range written {
		if _, stated := p.Labels[key]; stated {
			faults = append(faults, field.Forbidden(label(key), "it is an annotation, not a label: move it to metadata.annotations"))
		}
	}
	return faults
}

// unknown says what a key was probably meant to be.
func unknown(key string) string {
	names := make([]string, len(written))
	for i, w := range written {
		names[i] = strings.TrimPrefix(w, domain)
	}
	if name := spelling.Nearest(strings.TrimPrefix(key, domain), names); name != "" {
		return "no annotation of weft has this name: write " + domain + name
	}
	return "no annotation of weft has this name: there are " + strings.Join(written, ", ")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
