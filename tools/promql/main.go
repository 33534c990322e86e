// promql answers PromQL queries about expositions: Prometheus' own parser, storage and engine, without a server.
//
// On standard input: {"scrapes": [{"at": SECONDS, "labels": {...}, "content_type": ..., "body": ...}],
// "queries": [...], "at": SECONDS}; on standard output one answer for each query, in order.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

type scrape struct {
	At          float64           `json:"at"`
	Labels      map[string]string `json:"labels"` // as a scrape configuration adds them to a target
	ContentType string            `json:"content_type"`
	Body        string            `json:"body"`
}

type question struct {
	Scrapes []scrape `json:"scrapes"`
	Queries []string `json:"queries"`
	At      float64  `json:"at"`
}

type selector struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

type series struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"` // JSON has no NaN
}

type answer struct {
	Error     string     `json:"error"`
	Selectors []selector `json:"selectors"`
	Series    []series   `json:"series"`
	Warnings  []string   `json:"warnings"`
}

func main() {
	log.SetFlags(0)
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "promql-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	answers, err := answerAll(asked, folder)
	if err != nil {
		os.RemoveAll(folder)
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}

func answerAll(asked question, folder string) ([]answer, error) {
	options := tsdb.DefaultOptions()
	options.MinBlockDuration = int64(24 * time.Hour / time.Millisecond)
	options.MaxBlockDuration = options.MinBlockDuration
	db, err := tsdb.Open(folder, nil, nil, options, tsdb.NewDBStats())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for _, one := range asked.Scrapes {
		if err := store(db, one); err != nil {
			return nil, err
		}
	}
	language := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: 10 * time.Second, Parser: language,
	})
	answers := make([]answer, 0, len(asked.Queries))
	for _, query := range asked.Queries {
		answers = append(answers, evaluate(engine, language, db, query, asked.At))
	}
	return answers, nil
}

// store keeps a page's samples, as a scrape of its target at that time would.
func store(db *tsdb.DB, one scrape) error {
	page, err := textparse.New([]byte(one.Body), one.ContentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	appender := db.Appender(context.Background())
	for {
		entry, err := page.Next()
		if errors.Is(err, io.EOF) {
			return appender.Commit()
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := page.Series()
		var found labels.Labels
		page.Labels(&found)
		builder := labels.NewBuilder(found)
		for name, value := range one.Labels {
			builder.Set(name, value)
		}
		if _, err := appender.Append(0, builder.Labels(), milliseconds(one.At), value); err != nil {
			return err
		}
	}
}

func evaluate(engine *promql.Engine, language parser.Parser, db *tsdb.DB, query string, at float64) answer {
	expression, err := language.ParseExpr(query)
	if err != nil {
		return answer{Error: err.Error()}
	}
	made := answer{Selectors: selectors(expression)}
	prepared, err := engine.NewInstantQuery(context.Background(), db, nil, query, time.UnixMilli(milliseconds(at)))
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer prepared.Close()
	result := prepared.Exec(context.Background())
	if result.Err != nil {
		return answer{Error: result.Err.Error()}
	}
	for _, warning := range result.Warnings.AsErrors() {
		made.Warnings = append(made.Warnings, warning.Error())
	}
	switch value := result.Value.(type) {
	case promql.Vector:
		for _, sample := range value {
			made.Series = append(made.Series, series{sample.Metric.Map(), text(sample.F)})
		}
	case promql.Scalar:
		made.Series = append(made.Series, series{map[string]string{}, text(value.V)})
	default:
		made.Error = "neither a vector nor a scalar"
	}
	return made
}

// selectors returns what a query reads: each metric, with the labels by which it chooses, groups or joins.
func selectors(expression parser.Expr) []selector {
	var found []selector
	parser.Inspect(expression, func(node parser.Node, path []parser.Node) error {
		chosen, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		one := selector{Metric: chosen.Name, Labels: []string{}}
		for _, matcher := range chosen.LabelMatchers {
			if matcher.Name != labels.MetricName {
				one.Labels = append(one.Labels, matcher.Name)
			}
		}
		for _, above := range path {
			switch above := above.(type) {
			case *parser.AggregateExpr:
				if !above.Without {
					one.Labels = append(one.Labels, above.Grouping...)
				}
			case *parser.BinaryExpr:
				if above.VectorMatching != nil && above.VectorMatching.On {
					one.Labels = append(one.Labels, above.VectorMatching.MatchingLabels...)
				}
			}
		}
		slices.Sort(one.Labels)
		one.Labels = slices.Compact(one.Labels)
		found = append(found, one)
		return nil
	})
	return found
}

func milliseconds(at float64) int64 { return int64(math.Round(at * 1000)) }

func text(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }
