package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser starts the system's Chromium, alone and without a network of its own.
func browser(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED under -short: looks at the page in Chromium")
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Skip("SKIPPED for want of a browser: install chromium to look at the HTML report")
	}
	profile, err := os.MkdirTemp("", "weft-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(profile) }) // its children may write to it a moment longer than it lives
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(profile), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-sync", true), chromedp.WSURLReadTimeout(time.Minute))
	limited, end := context.WithTimeout(context.Background(), 3*time.Minute)
	allocated, stop := chromedp.NewExecAllocator(limited, options...)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		cancel()
		stop()
		end()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// stored writes the page of a study and returns its address.
func stored(t *testing.T, s Study) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, s); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// seen is what the page says of itself once drawn.
type seen struct {
	Width, Wanted int // of the window, of the document
	Charts        []struct {
		Name          string
		Width, Height float64
	}
	Faint   []string // text with a contrast below 4.5
	Small   []string // targets below 24 px
	Overlap []string // texts of a chart on top of each other
	Outside []string // text of a chart beyond the window
}

// look measures the page. Contrast is that of WCAG 2: (L1 + 0.05) / (L2 + 0.05).
const look = `(() => {
  const probe = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (c) => { probe.clearRect(0, 0, 1, 1); probe.fillStyle = c; probe.fillRect(0, 0, 1, 1); return [...probe.getImageData(0, 0, 1, 1).data]; };
  const lum = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] === 255) return rgb(c); } return [255, 255, 255]; };
  const shown = (e) => { const r = e.getBoundingClientRect(); return r.width > 1 && r.height > 1; };
  const faint = [], small = [], overlap = [], outside = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || /^(script|style|title|desc)$/i.test(e.tagName) || !shown(e)) continue;
    const s = getComputedStyle(e), ink = rgb(e.closest("svg") ? s.fill : s.color);
    const a = lum(ink), b = lum(ground(e)), contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (contrast < 4.5) faint.push(contrast.toFixed(2) + " " + walk.currentNode.textContent.trim().slice(0, 40));
  }
  for (const e of document.querySelectorAll("a, button, summary, [tabindex]")) {
    const r = e.getBoundingClientRect();
    if (r.width > 0 && (r.width < 24 || r.height < 24)) small.push(e.textContent.trim().slice(0, 40));
  }
  for (const svg of document.querySelectorAll(".area")) {
    const texts = [...svg.querySelectorAll("text")].filter(shown).map((e) => [e.getBoundingClientRect(), e.textContent]);
    texts.forEach(([r, s], i) => {
      if (r.left < 0 || r.right > innerWidth) outside.push(s);
      for (const [q, o] of texts.slice(i + 1))
        if (r.left + 1 < q.right && q.left + 1 < r.right && r.top + 3 < q.bottom && q.top + 3 < r.bottom) overlap.push(s + " / " + o);
    });
  }
  const charts = [...document.querySelectorAll(".area")].map((e) => { const r = e.getBoundingClientRect(); return {Name: e.getAttribute("aria-label"), Width: r.width, Height: r.height}; });
  return JSON.stringify({Width: innerWidth, Wanted: document.documentElement.scrollWidth, Charts: charts, Faint: faint, Small: small, Overlap: overlap, Outside: outside});
})()`

// press focuses the first live chart and moves its cursor with the keyboard.
const press = `(() => {
  const plot = document.querySelector(".plot.live");
  plot.focus();
  plot.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
  const text = document.querySelector(".readout").textContent, outline = getComputedStyle(plot).outlineWidth;
  plot.blur();
  return text + " | " + plot.getAttribute("aria-valuetext") + " | " + outline;
})()`

// faults gathers what a page must not have: messages on the console, errors, and requests for anything but itself.
type faults struct {
	mu   sync.Mutex
	list []string
}

func (f *faults) add(format string, values ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, fmt.Sprintf(format, values...))
}

func (f *faults) watch(ctx context.Context, address string) error {
	return chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			f.add("console: %v", e.Type)
		case *runtime.EventExceptionThrown:
			f.add("exception: %v", e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			f.add("log: %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; url != address && !strings.HasPrefix(url, "data:") {
				f.add("request for %s", url)
			}
		}
	})
}

func TestPageInABrowser(t *testing.T) {
	ctx := browser(t)
	full := generated(500, 16)
	partial := generated(500, 16)
	partial.Partial = "Interrupted at 3,100 of 5,000 jobs; the figures are of those."
	for i := range 4 {
		partial.Runs = append(partial.Runs, queue(fmt.Sprintf("policy %d with a rather long name", i), 900, 40, 1+i, i == 1))
	}
	desktopAndPhone := []window{{1280, "light"}, {360, "dark"}}
	for _, page := range []struct {
		name   string
		study  Study
		charts int
		views  []window
	}{
		{"full", full, 2 + 3 + 3, []window{{1280, "light"}, {1280, "dark"}, {900, "light"}, {360, "light"}, {360, "dark"}}},
		{"partial", partial, 2 + 7 + 7, desktopAndPhone},
		{"rated", rated(), 2 + 3 + 3 + 3, []window{{1280, "light"}, {1280, "dark"}, {360, "light"}}},
		{"hostile", hostile(), 2 + 2 + 2 + 2, desktopAndPhone},
		{"empty", Study{Title: "weft sim empty.csv"}, 0, desktopAndPhone},
	} {
		address := stored(t, page.study)
		for _, v := range page.views {
			name := fmt.Sprintf("%s-%d-%s", page.name, v.width, v.scheme)
			t.Run(name, func(t *testing.T) { inspect(ctx, t, name, address, v, page.charts) })
		}
	}
}

// window is how a page is looked at: its width in pixels, and the colour scheme that the reader prefers.
type window struct {
	width  int
	scheme string
}

func inspect(parent context.Context, t *testing.T, name, address string, v window, charts int) {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent)
	defer cancel()
	var f faults
	must(t, f.watch(ctx, address))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must(t, err)
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	must(t, err)
	_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}})
	must(t, err)
	_, err = chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: int64(v.width), Height: 800, DeviceScaleFactor: 1, Mobile: v.width < 600})
	must(t, err)
	must(t, chromedp.Do(ctx, chromedp.Navigate(address)))
	report, err := chromedp.Run(ctx, chromedp.Evaluate[string](look))
	must(t, err)
	pressed := ""
	if charts > 0 {
		pressed, err = chromedp.Run(ctx, chromedp.Evaluate[string](press))
		must(t, err)
	}
	if dir := os.Getenv("WEFT_SCREENSHOTS"); dir != "" {
		picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600))
	}
	var s seen
	if err := json.Unmarshal([]byte(report), &s); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for what, list := range map[string][]string{"fault": f.list, "faint text": s.Faint, "small target": s.Small,
		"texts overlap": s.Overlap, "text outside": s.Outside} {
		for _, x := range list {
			t.Errorf("%s: %s", what, x)
		}
	}
	if s.Width != v.width || s.Wanted > v.width {
		t.Errorf("the document is %d wide in a window of %d (%d)", s.Wanted, v.width, s.Width)
	}
	if len(s.Charts) != charts {
		t.Errorf("%d charts, want %d", len(s.Charts), charts)
	}
	for _, c := range s.Charts {
		if c.Width < 180 || c.Height < 14 {
			t.Errorf("chart %q is %.0f x %.0f", c.Name, c.Width, c.Height)
		}
	}
	if charts > 0 {
		if parts := strings.Split(pressed, " | "); parts[0] != parts[1] || !strings.Contains(parts[0], "%") || parts[2] != "2px" {
			t.Errorf("the keyboard reads %q", pressed)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rated is a study of few jobs in three ways, with the rate of each.
func rated() Study {
	s := generated(16, 4)
	for i := range s.Runs {
		s.Runs[i].Floor = 0
		for n := range 16 {
			r := Rate{Job: fmt.Sprintf("%02d-transformer-%d", n+1, 16<<(n%4)), Group: []string{"burstable", "guaranteed", "besteffort"}[n*n%3], Rate: 1.01, Floor: 0.9}
			if i > 0 {
				r.Rate = float64(n*7%16)/15*0.5*float64(i) + 0.02
			}
			s.Runs[i].Rates = append(s.Runs[i].Rates, r)
		}
	}
	return s
}

func hostile() Study {
	const name = `</script><script>alert(1)</script>"'><img src=x onerror=alert(2)> ` + "\u202eabc\u202c 🚀 عربى"
	s := generated(60, 3)
	s.Title, s.Command, s.Verdict, s.Partial = name, strings.Repeat(name, 5), name, name
	s.Notes = []string{name, strings.Repeat("x", 400)}
	s.Excluded[0].Reason = name
	s.Runs = s.Runs[1:]
	for i := range s.Runs {
		s.Runs[i].Name = name
		s.Runs[i].GPUNames = []string{name, "", strings.Repeat("long", 30)}
		for n := range s.Runs[i].Bars {
			s.Runs[i].Bars[n].Job = name
		}
		s.Runs[i].Rates = []Rate{{Job: name, Group: name, Rate: math.NaN(), Floor: 0.9}, {Job: name, Rate: math.Inf(1), Floor: 2}}
	}
	for _, row := range s.Table.Rows {
		row[0].Text, row[3].Text = name, name
	}
	return s
}
