// Applies a MutatingAdmissionPolicy to Pods with the code of Kubernetes' API server, and prints each Pod as it
// would be stored:
//
//	admission POLICY POD...
//
// Each POD is a JSON file. The output is one JSON document a line: the Pod after one evaluation, and after a
// second one, as when another plugin has changed it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/openapi/openapitest"
	"sigs.k8s.io/yaml"
)

var (
	kind     = corev1.SchemeGroupVersion.WithKind("Pod")
	resource = corev1.SchemeGroupVersion.WithResource("pods")
)

// judge is a policy that Kubernetes has compiled.
type judge struct {
	policy     admissionv1.MutatingAdmissionPolicy
	compiler   *plugincel.CompositedCompiler
	conditions matchconditions.Matcher
	patchers   []patch.Patcher
	types      patch.TypeConverterManager
	scheme     *runtime.Scheme
}

func compile(ctx context.Context, file string) (*judge, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	j := &judge{scheme: runtime.NewScheme()}
	if err := yaml.UnmarshalStrict(text, &j.policy); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := corev1.AddToScheme(j.scheme); err != nil {
		return nil, err
	}
	environments := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	if j.compiler, err = plugincel.NewCompositedCompiler(environments); err != nil {
		return nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []plugincel.NamedExpressionAccessor
	for _, variable := range j.policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: variable.Name, Expression: variable.Expression})
	}
	j.compiler.CompileAndStoreVariables(variables, options, environment.StoredExpressions)
	var conditions []plugincel.ExpressionAccessor
	for index := range j.policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&j.policy.Spec.MatchConditions[index]))
	}
	// A policy that cannot be evaluated has to fail here, whatever its failurePolicy does in a cluster.
	fail := admissionv1.Fail
	// The API server refuses variables in these conditions, so they are compiled without them.
	evaluator := plugincel.NewConditionCompiler(environments).CompileCondition(conditions, options, environment.StoredExpressions)
	j.conditions = matchconditions.NewMatcher(evaluator, &fail, "policy", "mutating", j.policy.Name)
	options.HasPatchTypes = true
	for _, mutation := range j.policy.Spec.Mutations {
		if mutation.JSONPatch == nil {
			return nil, fmt.Errorf("%s: a mutation is not a JSONPatch", file)
		}
		condition := &patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}
		compiled := j.compiler.CompileMutatingEvaluator(condition, options, environment.StoredExpressions)
		j.patchers = append(j.patchers, patch.NewJSONPatcher(compiled))
	}
	j.types = patch.NewTypeConverterManager(nil, openapitest.NewEmbeddedFileClient())
	go j.types.Run(ctx)
	for j.types.GetTypeConverter(kind) == nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return j, nil
}

// evaluate returns the Pod as the policy changes it: the same one if the policy does not match.
func (j *judge) evaluate(ctx context.Context, object runtime.Object) (runtime.Object, error) {
	pod := object.(*corev1.Pod)
	selector, err := metav1.LabelSelectorAsSelector(j.policy.Spec.MatchConstraints.ObjectSelector)
	if err != nil {
		return nil, err
	}
	if !selector.Matches(labels.Set(pod.Labels)) {
		return object, nil
	}
	attributes := func(object runtime.Object) *admission.VersionedAttributes {
		record := admission.NewAttributesRecord(object, nil, kind, pod.Namespace, pod.Name, resource, "",
			admission.Create, &metav1.CreateOptions{}, false, nil)
		return &admission.VersionedAttributes{Attributes: record, VersionedKind: kind, VersionedObject: object}
	}
	if result := j.conditions.Match(ctx, attributes(object), nil, nil); result.Error != nil {
		return nil, result.Error
	} else if !result.Matches {
		return object, nil
	}
	for _, patcher := range j.patchers {
		request := patch.Request{
			MatchedResource:     resource,
			VersionedAttributes: attributes(object),
			ObjectInterfaces:    admission.NewObjectInterfacesFromScheme(j.scheme),
			Namespace:           &corev1.Namespace{},
			TypeConverter:       j.types.GetTypeConverter(kind),
		}
		if object, err = patcher.Patch(ctx, request, celconfig.RuntimeCELCostBudget); err != nil {
			return nil, err
		}
	}
	return object, nil
}

func run(policy string, files []string) error {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	j, err := compile(ctx, policy)
	if err != nil {
		return err
	}
	ctx = j.compiler.CreateContext(ctx)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(text, pod); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		pod.SetGroupVersionKind(kind)
		var object runtime.Object = pod
		for range 2 {
			if object, err = j.evaluate(ctx, object); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if err := json.NewEncoder(os.Stdout).Encode(object); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: admission POLICY POD...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "admission:", err)
		os.Exit(1)
	}
}
