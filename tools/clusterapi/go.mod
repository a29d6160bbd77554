module github.com/karpenter-provider-metal3/karpenter-provider-metal3/tools/clusterapi

go 1.26.9

require sigs.k8s.io/cluster-api v1.14.2
