// promql answers PromQL queries about expositions: Prometheus' own parser, storage and engine, without a server.
//
// On standard input: {"scrapes": [SCRAPE, ...], "queries": [...], "at": SECONDS}; on standard output one answer
// for each query, in order. With "alerts" as its argument it plays rules instead: see alerts.go.
package main

import (
	"context"
	"encoding/json"
	"log"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

type question struct {
	Scrapes []scrape     `json:"scrapes"`
	Queries []string     `json:"queries"`
	At      float64      `json:"at"`
	Groups  []rulesGroup `json:"groups"` // of alerts, evaluated every Step seconds until At
	Step    float64      `json:"step"`
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
	var answers any
	if slices.Contains(os.Args[1:], "alerts") {
		answers, err = play(asked, folder)
	} else {
		answers, err = answerAll(asked, folder)
	}
	if err != nil {
		os.RemoveAll(folder)
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}

func answerAll(asked question, folder string) ([]answer, error) {
	db, err := stored(asked.Scrapes, folder)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	language, engine := engines()
	answers := make([]answer, 0, len(asked.Queries))
	for _, query := range asked.Queries {
		answers = append(answers, evaluate(engine, language, db, query, asked.At))
	}
	return answers, nil
}

func engines() (parser.Parser, *promql.Engine) {
	language := parser.NewParser(parser.Options{})
	return language, promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: 10 * time.Second, Parser: language,
	})
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
